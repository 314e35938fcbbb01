#!/bin/sh
# flax 0.12.8 with jax 0.10.2: an nnx.Rngs has every attribute that it is asked for. A library that
# finds out by hasattr(value, "state_dict") how to save a value takes it for one that has state_dict
# and load_state_dict. Its class has neither.
# Seen: hasattr is True for the object and False for its class; rngs.state_dict() draws a random key.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet flax==0.12.8 jax==0.10.2
"$folder/env/bin/python" - <<'PYTHON'
import flax
import jax
from flax import nnx

rngs = nnx.Rngs(0)
seen = hasattr(rngs, "state_dict"), hasattr(type(rngs), "state_dict")
drawn = rngs.state_dict()
print("flax", flax.__version__, "jax", jax.__version__, "object and class:", seen, type(drawn).__name__)
assert seen == (True, False)
assert jax.numpy.issubdtype(drawn.dtype, jax.dtypes.prng_key)
PYTHON
