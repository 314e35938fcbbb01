"""What ranks print: forwarded, kept in files, and searched for the first error."""
