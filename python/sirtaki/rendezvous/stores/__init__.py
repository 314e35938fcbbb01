"""Key-value stores through which ranks exchange addresses before they have links."""
