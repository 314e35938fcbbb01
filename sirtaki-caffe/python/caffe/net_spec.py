"""The names of `caffe.net_spec`."""

from sirtaki_caffe.pycaffe.net_spec import *
from sirtaki_caffe.pycaffe.net_spec import layers as layers
from sirtaki_caffe.pycaffe.net_spec import params as params
