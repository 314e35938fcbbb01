"""The adapter for NumPy arrays, the smallest of all."""
