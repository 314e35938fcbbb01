"""The names of `caffe.detector`."""

from sirtaki_caffe.pycaffe.detector import *
