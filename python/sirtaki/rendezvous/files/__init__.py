"""Memory files and private folders."""
