"""Caffe's nets as they are: prototxt files trained by PyTorch, on many processes."""
