from sirtaki.keras import *
