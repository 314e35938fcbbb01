"""Caffe's messages, in `caffe_pb2`."""
