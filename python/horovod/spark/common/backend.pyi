from sirtaki.spark.common.backend import *
