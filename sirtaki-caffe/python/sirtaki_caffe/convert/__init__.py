"""Conversion of a Caffe net to a PyTorch module."""
