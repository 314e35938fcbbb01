"""What a rank records while `sirtaki trace` wants it to, and the spans of the user's own code."""
