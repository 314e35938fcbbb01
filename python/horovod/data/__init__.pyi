from sirtaki.data import *
