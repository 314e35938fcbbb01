#!/bin/sh
# TensorFlow 2.21.0 with Keras 3.15.1: `import tensorflow` also imports JAX, matplotlib.pyplot and
# scikit-learn if they are installed, though a program uses none of them: tensorflow.lite imports
# jax, and keras.src imports matplotlib.pyplot to draw and sklearn to wrap models. Each process of a
# job pays for that at its start, so what else is in an environment decides how fast ranks start.
# Seen: without them none of the three is loaded; with them all three are, and the import took 8.5
# instead of 4.9 s of processor time. The times depend on the machine: they are printed, not checked.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
python="$folder/env/bin/python"
cat > "$folder/look.py" <<'PYTHON'
import sys
import time

before = time.process_time()
import tensorflow

seconds = time.process_time() - before
names = ("jax", "matplotlib.pyplot", "sklearn")
found = [name for name in names if name in sys.modules]
print(f"tensorflow {tensorflow.__version__}: {seconds:.1f} s of processor time; also {found}")
sys.exit(found != (list(names) if sys.argv[1] == "all" else []))
PYTHON
"$python" -m pip install --quiet tensorflow-cpu==2.21.0 keras==3.15.1
"$python" "$folder/look.py" none 2>/dev/null
"$python" -m pip install --quiet jax==0.10.2 jaxlib==0.10.2 matplotlib==3.11.2 scikit-learn==1.9.1
"$python" "$folder/look.py" all 2>/dev/null
