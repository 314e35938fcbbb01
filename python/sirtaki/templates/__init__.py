"""Scripts to start from, which `sirtaki new` copies: each trains at any number of processes."""
