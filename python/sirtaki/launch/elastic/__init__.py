"""Jobs whose processes may be lost and replaced while they run."""
