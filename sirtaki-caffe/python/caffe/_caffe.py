"""The names of `caffe._caffe`, a library of C++ in Caffe."""

from sirtaki_caffe.pycaffe import *
