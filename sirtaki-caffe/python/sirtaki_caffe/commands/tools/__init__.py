"""The tools beside `caffe`, each with flags of its own."""
