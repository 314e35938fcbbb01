"""The names of `caffe.draw`."""

from sirtaki_caffe.pycaffe.draw import *
