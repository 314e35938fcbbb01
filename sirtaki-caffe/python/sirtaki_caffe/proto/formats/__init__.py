"""Binary messages and HDF5, at the level of bytes."""
