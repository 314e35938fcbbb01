"""Jobs whose ranks a scheduler's own program starts."""
