"""Layer types, by family."""
