"""Recording of a rank for `sirtaki trace`, and spans of the user's own code."""
