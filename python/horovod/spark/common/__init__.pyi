from sirtaki.spark.common import *
