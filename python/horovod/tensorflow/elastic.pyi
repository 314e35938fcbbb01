from sirtaki.tensorflow.elastic import *
