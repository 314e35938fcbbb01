"""`sirtaki trace`: records all ranks of a running job in one file."""
