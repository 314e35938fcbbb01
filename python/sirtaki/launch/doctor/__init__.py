"""What works on this machine, and why something does not."""
