from sirtaki.torch.compression import *
