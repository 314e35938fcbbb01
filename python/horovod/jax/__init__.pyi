from sirtaki.jax import *
