"""The text format: tokens, parser, and text that is kept unparsed."""
