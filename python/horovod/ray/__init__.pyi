from sirtaki.ray import *
