"""The names of pycaffe, for scripts that say `import caffe`."""

from sirtaki.caffe import *
