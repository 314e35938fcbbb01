#!/bin/sh
# Checks on real GPUs: run.sh [--json FILE] [--seconds N] [--only TEXT], by $PYTHON (python3).
# In a folder that pack.sh made it installs what lies in wheels; it needs no network.
# Exits with 0 when all passed, 1 when a check failed, 77 where PyTorch sees no GPU.
set -eu

python=${PYTHON:-python3}
here=$(cd "$(dirname "$0")" && pwd)
if [ -d "$here/wheels" ]; then
  site=$here/site
  rm -rf "$site"
  # What the machine has stays: PyTorch may have been built for its NumPy.
  packages=sirtaki
  for package in numpy yaml:PyYAML cloudpickle; do
    "$python" -c "import ${package%%:*}" 2>/dev/null || packages="$packages ${package##*:}"
  done
  # shellcheck disable=SC2086 # one word a package
  "$python" -m pip install --quiet --disable-pip-version-check --no-index --no-deps \
    --find-links "$here/wheels" --target "$site" $packages
  PYTHONPATH=$site${PYTHONPATH:+:$PYTHONPATH}
  export PYTHONPATH
fi
exec "$python" "$here/kit.py" "$@"
