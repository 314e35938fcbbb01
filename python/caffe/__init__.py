"""The names of pycaffe, for scripts that say `import caffe`."""

from sirtaki.caffe.pycaffe import *
from sirtaki.caffe.pycaffe import __version__ as __version__
