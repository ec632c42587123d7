"""Files, locks, signals and output."""
