from sirtaki.torch.functions import *
