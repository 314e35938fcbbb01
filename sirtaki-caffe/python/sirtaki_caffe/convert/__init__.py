"""From a net of Caffe's to a module written in PyTorch."""
