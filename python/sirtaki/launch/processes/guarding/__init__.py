"""The guardian: what `guardian.py` runs, without `sirtaki`, and how it is started."""
