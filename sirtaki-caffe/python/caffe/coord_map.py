"""The names of `caffe.coord_map`."""

from sirtaki_caffe.pycaffe.coord_map import *
