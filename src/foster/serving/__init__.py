"""A bundle behind HTTP, and the page to drop photos on."""
