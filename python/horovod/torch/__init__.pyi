from sirtaki.torch import *
