"""The ranks of one host: their meeting and their shared resources."""
