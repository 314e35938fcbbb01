#!/bin/sh
# Packs what tests/gpu/run.sh needs on a machine without a network: pack.sh FOLDER, by $PYTHON (python3).
# FOLDER gets Sirtaki's wheels for every Python found here, those that it depends on for Python
# $FOR (3.12) of this processor, the checks and the examples. There: FOLDER/run.sh.
set -eu

folder=${1:?usage: tests/gpu/pack.sh FOLDER}
here=$(cd "$(dirname "$0")" && pwd)
root=$here/../..
version=${FOR:-3.12}
[ ! -e "$folder" ] || [ -e "$folder/kit.py" ] || [ -z "$(ls "$folder")" ] || {
  echo "pack.sh: $folder holds other files; name a new folder" >&2
  exit 1
}
rm -rf "$folder"
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
cd "$root"
# First: a folder with kit.py is one to write again.
cp tests/gpu/*.py tests/gpu/run.sh "$folder"

make --no-print-directory ${PYTHON:+PYTHON="$PYTHON"} .venv/.requirements-wheels
architecture=$(uname -m)
.venv/bin/python -m tools.wheels --architecture "$architecture" --output "$folder/wheels"
find "$folder/wheels" ! -type d ! -name "*manylinux*_$architecture.whl" -delete
# Each glibc that some wheel of these asks for.
platforms=$(for minor in 17 27 28; do printf ' --platform manylinux_2_%s_%s' "$minor" "$architecture"; done)
# shellcheck disable=SC2086 # several words
.venv/bin/python -m pip download --quiet --no-deps --only-binary=:all: --implementation cp \
  --python-version "$version" --platform "manylinux2014_$architecture" $platforms \
  --dest "$folder/wheels" numpy PyYAML cloudpickle
ls "$folder"/wheels/sirtaki-*cp"$(echo "$version" | tr -d .)"-*.whl >/dev/null || {
  echo "pack.sh: no wheel of Sirtaki for Python $version: make wheels names the interpreters that it needs" >&2
  exit 1
}

mkdir "$folder/examples"
cp examples/*.py "$folder/examples"
.venv/bin/python tests/gpu/write_digits.py "$folder/digits"
git describe --always --dirty > "$folder/COMMIT"
find "$folder" -name __pycache__ -prune -exec rm -rf {} +
echo "$(du -sm "$folder" | cut -f1) MB in $folder; on the machine with a GPU: ./run.sh --json gpu.json"
