"""Schedulers and process starters, each in a file of its own."""
