from sirtaki.keras.callbacks import *
