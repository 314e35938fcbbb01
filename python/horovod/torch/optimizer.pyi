from sirtaki.torch.optimizer import *
