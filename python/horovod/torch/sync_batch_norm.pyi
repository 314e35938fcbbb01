from sirtaki.torch.sync_batch_norm import *
