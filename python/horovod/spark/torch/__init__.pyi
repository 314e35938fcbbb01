from sirtaki.spark.torch import *
