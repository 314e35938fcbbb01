from sirtaki.lightning import *
