from sirtaki.tensorflow.data.compute_service import *
