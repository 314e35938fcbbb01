"""Binary messages and HDF5, down to their bytes."""
