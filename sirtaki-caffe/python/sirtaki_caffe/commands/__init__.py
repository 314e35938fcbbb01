"""The command `caffe` and the tools beside it."""
