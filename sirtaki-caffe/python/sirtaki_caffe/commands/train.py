"""`caffe train`."""

from __future__ import annotations

from typing import Any

from sirtaki_caffe.commands import devices, terminal
from sirtaki_caffe.commands.flags import Flags
from sirtaki_caffe.commands.log import Log
from sirtaki_caffe.commands.terminal import Progress
from sirtaki_caffe.errors import CaffeError
from sirtaki_caffe.parallel import Processes
from sirtaki_caffe.proto.text import read_net, read_phases
from sirtaki_caffe.proto.weights import LayerWeights
from sirtaki_caffe.solver.fields import placed
from sirtaki_caffe.solver.solver import Options, Solver


def run(flags: Flags, log: Log) -> int:
    """Train according to the flags; return the exit code.

    Raises:
        CaffeError: A file or a flag cannot be used.
    """
    if not flags.solver:
        raise CaffeError("Need a solver definition to train: --solver=FILE")
    if flags.snapshot and flags.weights:
        raise CaffeError("Give --snapshot to resume training or --weights to finetune, not both")
    if _wrong_groups(flags, log):
        return 1
    phases = read_phases(flags.solver, lambda line: log.info("upgrade_proto.cpp", line))
    processes = Processes.join()
    handed: list[LayerWeights] = []
    with (
        terminal.watched(flags.sigint_effect, flags.sighup_effect) as requests,
        placed(flags.solver),
    ):
        for number, (param, batch_size) in enumerate(phases):
            _apply_flags(param, flags)
            if len(phases) > 1:
                log.info("caffe.cpp", f"Phase {number} of {len(phases)}")
                param.snapshot_prefix += f"_phase_{number}"
            if batch_size is not None:
                _set_batch_size(param, batch_size)
            progress = Progress(log) if processes.is_first else None
            options = Options(
                engine=flags.engine,
                device=devices.device(flags, processes, log, param),
                warn=log.warning,
                requests=requests,
                after_iteration=progress.show if progress else lambda _: None,
            )
            solver = Solver(param, log.info, processes, options)
            try:
                _start(solver, flags if number == 0 else Flags(), handed)
                handed = _handed_on(solver) if number + 1 < len(phases) else []
            finally:
                solver.close()
                if progress:
                    progress.end()
            if solver.stopped:
                break
    log.info("caffe.cpp", "Optimization Done.")
    return 0


def _wrong_groups(flags: Flags, log: Log) -> bool:
    if flags.n_group == 1 and flags.n_server == 0:
        return False
    log.error(
        "caffe.cpp",
        f"--n_group={flags.n_group} --n_server={flags.n_server}: asynchronous groups and parameter "
        "servers are not supported; without these flags all processes train one net together",
    )
    return True


def _apply_flags(param: Any, flags: Flags) -> None:
    if flags.level:
        param.train_state.level = flags.level
    for stage in filter(None, flags.stage.split(",")):
        param.train_state.stage.append(stage)


def _set_batch_size(param: Any, batch_size: int) -> None:
    """Set the batch size of the train net's first Data layer."""
    field = "train_net" if param.HasField("train_net") else "net"
    if param.HasField(field):
        net = read_net(getattr(param, field))
        getattr(param, f"{field}_param").CopyFrom(net)
        param.ClearField(field)
    for layer in getattr(param, f"{field}_param").layer:
        if layer.type == "Data":
            layer.data_param.batch_size = batch_size
            return


def _start(solver: Solver, flags: Flags, handed: list[LayerWeights]) -> None:
    files = [f for f in (flags.weights or ",".join(solver.param.weights)).split(",") if f]
    if handed:
        solver.take_weights(handed)
    elif flags.snapshot:
        solver.log("caffe.cpp", f"Resuming from {flags.snapshot}")
    elif files:
        solver.log("caffe.cpp", f"Finetuning from {','.join(files)}")
        solver.load_weights(files)
    solver.log("caffe.cpp", "Starting Optimization")
    if solver.processes.size > 1:
        solver.log("caffe.cpp", f"Number of processes: {solver.processes.size}")
    solver.solve(flags.snapshot)


def _handed_on(solver: Solver) -> list[LayerWeights]:
    """Return the weights for the next phase."""
    kinds = {layer.name: layer.type for layer in solver.net.proto.layer}
    return [
        LayerWeights(name, kinds[name], [blob.data.copy() for blob in blobs])
        for name, blobs in solver.net.saved().items()
    ]
