from sirtaki.tensorflow.keras.callbacks import *
