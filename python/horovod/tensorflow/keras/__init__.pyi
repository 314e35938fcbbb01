from sirtaki.tensorflow.keras import *
