"""Where records lie: databases, HDF5 files, and text files that list images."""
