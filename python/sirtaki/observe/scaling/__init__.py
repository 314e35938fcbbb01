"""`sirtaki bench scaling`: a user's script at several numbers of ranks, and its limits."""
