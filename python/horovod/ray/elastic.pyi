from sirtaki.ray.elastic import *
