"""Images with boxes."""
