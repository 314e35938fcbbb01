from sirtaki.spark.common.store import *
