from sirtaki.torch.elastic import *
