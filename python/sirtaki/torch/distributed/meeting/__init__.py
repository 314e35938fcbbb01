"""The meeting of a group's members."""
