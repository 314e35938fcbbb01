"""The names of `caffe.io`."""

from sirtaki_caffe.pycaffe.io import *
