from sirtaki.core.facade import *
from sirtaki.tensorflow.mpi_ops import *
