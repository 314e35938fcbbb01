"""The ranks' output: forwarded, copied to files, and searched for the first error."""
