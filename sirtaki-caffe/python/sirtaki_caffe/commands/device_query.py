"""`caffe device_query`."""

from __future__ import annotations

import torch

from sirtaki_caffe.commands import devices
from sirtaki_caffe.commands.flags import Flags
from sirtaki_caffe.commands.log import Log


def run(flags: Flags, log: Log) -> int:
    """Print the available GPUs; return the exit code.

    Raises:
        CaffeError: The flag `gpu` is wrong.
    """
    log.info("caffe.cpp", f"Querying GPUs {flags.gpu or 'all'}")
    if not torch.cuda.is_available():
        log.info("common.cpp", "There is no GPU that PyTorch can use here.")
        return 0
    for number in devices.chosen(flags) or range(torch.cuda.device_count()):
        found = torch.cuda.get_device_properties(number)
        for name, value in (
            ("Device id", number),
            ("Name", found.name),
            ("Major revision number", found.major),
            ("Minor revision number", found.minor),
            ("Total global memory", found.total_memory),
            ("Number of multiprocessors", found.multi_processor_count),
        ):
            log.info("common.cpp", f"{name + ':':<31}{value}")
    return 0
