"""Collectives on accelerator tensors, through PyTorch's own process groups."""
