from sirtaki.spark import *
