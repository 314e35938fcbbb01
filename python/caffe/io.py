"""The names of `caffe.io`."""

from sirtaki.caffe.pycaffe.io import *
