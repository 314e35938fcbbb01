from sirtaki.spark.keras import *
