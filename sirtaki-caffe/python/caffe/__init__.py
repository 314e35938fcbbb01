"""The names of pycaffe, for scripts that use `import caffe`."""

from caffe import classifier as classifier
from caffe import detector as detector
from caffe import net_spec as net_spec
from caffe import pycaffe as pycaffe
from caffe.proto import caffe_pb2 as _caffe_pb2
from sirtaki_caffe.pycaffe import *
from sirtaki_caffe.pycaffe import __version__ as __version__

del _caffe_pb2  # imported to define `caffe.proto.caffe_pb2`
