from sirtaki.spark.lightning import *
