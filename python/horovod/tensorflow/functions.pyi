from sirtaki.tensorflow.functions import *
