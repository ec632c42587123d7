"""What the operating system does to us: files, locks, signals, streams, output that cannot be written."""
