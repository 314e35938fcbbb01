"""`sirtaki demo`: a tour of a few scenes with the commands that users type."""
