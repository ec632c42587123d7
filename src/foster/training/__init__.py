"""The one training loop, and what makes it fast and safe for every method."""
