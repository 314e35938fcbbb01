"""The ranks of one host: how they meet and what they share."""
