"""Training with the same bits on any number of ranks."""
