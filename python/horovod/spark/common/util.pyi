from sirtaki.spark.common.util import *
