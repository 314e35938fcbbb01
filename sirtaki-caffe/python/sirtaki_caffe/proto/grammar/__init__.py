"""The text format: tokens, parser, and what is kept unread."""
