"""The tools beside `caffe`, each with its own flags."""
