"""Keeps the step of a rank that fails, or finds a value that is not finite."""

from __future__ import annotations

import math
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
import torch

from sirtaki.core.world import state as world_state
from sirtaki.rendezvous.files.kept_step import StepFacts, keep
from sirtaki.rendezvous.host.presence import own_folder
from sirtaki.rendezvous.words import printable, truth
from sirtaki.torch.reproducible.buffers import Buffers
from sirtaki.torch.reproducible.optimizer import _ReproducibleOptimizer
from sirtaki.torch.reproducible.parts import StepPlan
from sirtaki.torch.reproducible.sums import GradientSum

_FOLDER = "steps"


class Subject(NamedTuple):
    """What a step is computed with.

    Attributes:
        models: The modules.
        optimizer: Their optimizer.
        buffers: The modules' buffers.
        objects: Other values of the state, by name.
        settings: Of the sampler, by name.
    """

    models: Sequence[torch.nn.Module]
    optimizer: _ReproducibleOptimizer
    buffers: Buffers
    objects: Mapping[str, Any]
    settings: Mapping[str, Any]

    @property
    def all_settings(self) -> dict[str, Any]:
        """What the bits of a part depend on and a program chooses, by name."""
        return {"the number of threads": torch.get_num_threads(), **self.settings}


class Keeper:
    """Keeps the current step, as it was before, in a private folder.

    It copies nothing in advance. Parts change neither parameters nor the optimizer's state, and the
    versions of the tensors tell whether something else did.

    Args:
        chosen: The folder for the steps, or a word for yes: then that of this user.
    """

    def __init__(self, chosen: str) -> None:
        self._chosen = None if truth(chosen) else Path(chosen)
        self._subject: Subject | None = None
        self._plan: StepPlan
        self._objects: dict[str, Any]
        self._optimizer: dict[str, Any]
        self._versions: list[tuple[torch.Tensor, int]] = []
        self._found_special = False  # in this step or an earlier one, by any rank

    def begin(self, subject: Subject, plan: StepPlan) -> None:
        """Note what a step begins with."""
        self._subject, self._plan = subject, plan
        self._objects = {name: v for name, v in subject.objects.items() if _is_plain(v)}
        # The step puts new values into these dictionaries, and changes the tensors in place.
        packed = subject.optimizer.state_dict()
        states = {key: dict(each) for key, each in packed["state"].items()}
        self._optimizer = {"state": states, "param_groups": packed["param_groups"]}
        tensors = [one.param for one in subject.optimizer.sums]
        tensors += [v for s in states.values() for v in s.values() if isinstance(v, torch.Tensor)]
        self._versions = [(tensor, tensor._version) for tensor in tensors]

    def forget(self) -> None:
        """Forget the step, whose world is lost."""
        self._subject = None
        self._versions = []

    def look(self, part: int, sums: Sequence[GradientSum], reported: Mapping[str, float]) -> None:
        """Keep the step if a part has a gradient or reports a value that is not finite."""
        if self._found_special:
            return
        found = [f"the gradient of {one.name}" for one in sums if one.seen.special]
        found += [f"the reported {name}" for name, v in reported.items() if not math.isfinite(v)]
        if found:
            self.note_special()
            self._keep(f"{found[0]} in part {part} is not finite")

    def note_special(self) -> None:
        """Note that a rank has found such a value: those of the next steps follow from it."""
        self._found_special = True

    def failed(self, error: Exception) -> None:
        """Keep the step because of an error."""
        lines = str(error).splitlines() or [""]
        self._keep(f"{type(error).__name__}: {lines[0]}")

    def _keep(self, why: str) -> None:
        if self._subject is None:
            return
        rank = world_state.rank()
        try:
            folder = self._write(self._subject, rank, why)
        except Exception as error:
            told = f"nothing is kept of the step: {error}"
        else:
            command = shlex.join(["sirtaki", "replay", str(folder), "--", *sys.orig_argv])
            told = f"kept the step; compute it alone: {command}"
        self.forget()
        print(printable(f"sirtaki: rank {rank}: {why}; {told}"), file=sys.stderr, flush=True)

    def _write(self, subject: Subject, rank: int, why: str) -> Path:
        if any(tensor._version != version for tensor, version in self._versions):
            raise ValueError("parameters or the optimizer's state have changed since it began")
        facts = StepFacts(
            rank,
            why,
            list(self._plan.mine),
            [list(self._plan.samples[part]) for part in self._plan.mine],
            torch.get_num_threads(),
            subject.all_settings,
            versions(),
        )
        values = {
            "models": [tensors_of(each, subject.buffers.before) for each in subject.models],
            "optimizer": _without_numpy(self._optimizer),
            "objects": self._objects,
            "epoch": self._plan.epoch,
            "position": self._plan.position,
        }

        def save(stream: IO[bytes]) -> None:
            torch.save(values, stream)

        root = self._chosen or own_folder() / _FOLDER
        return keep(root, facts, save, forgets=self._chosen is None)


def tensors_of(
    model: torch.nn.Module, before: Mapping[int, torch.Tensor] | None = None
) -> dict[str, torch.Tensor]:
    """Return a module's parameters and buffers by name.

    Args:
        model: The module.
        before: What to return in place of some buffers, by their ids.
    """
    given = before or {}
    return {
        **{name: param.detach() for name, param in model.named_parameters()},
        **{name: given.get(id(each), each) for name, each in model.named_buffers()},
    }


def versions() -> dict[str, str]:
    """Return what bits may depend on and a program does not choose."""
    return {
        "PyTorch": torch.__version__,
        "the processor's kernels": torch.backends.cpu.get_cpu_capability(),
    }


def _is_plain(value: Any) -> bool:
    return value is None or type(value) in (bool, int, float, str)


def _without_numpy(value: Any) -> Any:
    """Return a value with NumPy's numbers as Python's, since only these are loaded again."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, dict):
        return {key: _without_numpy(each) for key, each in value.items()}
    if type(value) in (list, tuple):
        return type(value)(map(_without_numpy, value))
    return value
