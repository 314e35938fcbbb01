"""Storage of records: databases, HDF5 files, and text files that list images."""
