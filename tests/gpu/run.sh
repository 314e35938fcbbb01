#!/bin/sh
# Checks on real GPUs: tests/gpu/run.sh [PYTHON]. Says so and exits with 77 where there are none.
set -eu

python=${1:-python3}
here=$(dirname "$0")

devices=$("$python" - <<'END'
import torch
import torch.distributed as dist

nccl = dist.is_available() and dist.is_nccl_available()
print(torch.cuda.device_count() if nccl and torch.cuda.is_available() else 0)
END
)
if [ "$devices" -eq 0 ]; then
  echo "no GPU that PyTorch has NCCL for: nothing was checked"
  exit 77
fi
echo "$devices GPUs"
run=$("$python" -c 'import sysconfig; print(sysconfig.get_path("scripts"))')/horovodrun

for ranks in 1 2 $([ "$devices" -gt 2 ] && echo "$devices"); do
  if [ "$ranks" -gt "$devices" ]; then
    echo "== $ranks ranks on $devices GPUs, through CPU memory"
  else
    echo "== $ranks ranks"
  fi
  "$run" -np "$ranks" "$python" "$here/check_collectives.py"
  "$run" -np "$ranks" "$python" "$here/../../examples/pytorch_mnist.py" --epochs 1
  if [ "$ranks" -le "$devices" ]; then
    "$run" -np "$ranks" "$python" "$here/check_speed.py"
    "$run" -np "$ranks" "$python" "$here/check_overlap.py"
  fi
done

echo "== 3 ranks, of which one is killed"
"$run" -np 3 --min-np 2 --blacklist-cooldown-range 60 60 "$python" "$here/check_elastic.py"
