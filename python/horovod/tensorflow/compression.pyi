from sirtaki.tensorflow.compression import *
