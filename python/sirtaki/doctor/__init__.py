"""Checks what works on this machine, and why something does not."""
