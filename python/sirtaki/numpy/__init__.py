"""The adapter for NumPy arrays, the smallest one."""
