"""`sirtaki ps` and `sirtaki stacks`: what the jobs of a user are doing on this machine."""
