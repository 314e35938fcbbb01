from sirtaki.tensorflow.keras.elastic import *
