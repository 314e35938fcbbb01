"""The names of `caffe.pycaffe`."""

from sirtaki_caffe.pycaffe import *
