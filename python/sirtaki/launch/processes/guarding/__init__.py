"""The guardian: the code of `guardian.py`, which imports no `sirtaki`, and its start."""
