from sirtaki.tensorflow.sync_batch_norm import *
