from sirtaki.keras.elastic import *
