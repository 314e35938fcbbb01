from sirtaki.core.facade import *
from sirtaki.torch.mpi_ops import *
