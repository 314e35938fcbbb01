"""The names of pycaffe, for scripts that say `import caffe`."""

from caffe.proto import caffe_pb2 as _caffe_pb2
from sirtaki_caffe.pycaffe import *
from sirtaki_caffe.pycaffe import __version__ as __version__

del _caffe_pb2  # imported so that `caffe.proto.caffe_pb2` is there
