"""The names of `caffe.classifier`."""

from sirtaki_caffe.pycaffe.classifier import *
