#!/bin/sh
# PyTorch 2.13.0: InstanceNorm with track_running_stats=True has the buffer `num_batches_tracked`, as
# BatchNorm has, but never counts. With momentum=None, which in BatchNorm makes running statistics
# the mean of all batches, those of InstanceNorm stay 0 and 1 for ever, without a word.
# Seen: after four batches of mean 2, BatchNorm1d has running_mean 2 and counted 4; InstanceNorm1d has
# running_mean 0 and counted 0, and with momentum=0.5 running_mean 1.875 and counted 0.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0 numpy
"$folder/env/bin/python" - <<'PYTHON'
import torch

batch = torch.tensor([[[1.0, 2.0, 3.0]]])
expected = {
    (torch.nn.BatchNorm1d, None): (2.0, 4),
    (torch.nn.InstanceNorm1d, None): (0.0, 0),
    (torch.nn.InstanceNorm1d, 0.5): (1.875, 0),
}
for (kind, momentum), seen in expected.items():
    layer = kind(1, momentum=momentum, track_running_stats=True).train()
    for _ in range(4):
        layer(batch)
    found = (layer.running_mean.item(), int(layer.num_batches_tracked))
    print("torch", torch.__version__, kind.__name__, momentum, found)
    assert found == seen
PYTHON
