"""The server of a bundle over HTTP, and its web page."""
