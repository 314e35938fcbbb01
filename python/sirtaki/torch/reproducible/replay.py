"""Computes the parts of a kept step again, and names the first module that is not finite."""

from __future__ import annotations

import math
import pickle
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from sirtaki.core.world import state as world_state
from sirtaki.rendezvous.files.kept_step import kept_step, note_replay
from sirtaki.torch.reproducible.batches import ConstantBatchSampler
from sirtaki.torch.reproducible.keep import Subject, tensors_of, versions
from sirtaki.torch.reproducible.parts import Part, StepParts, StepPlan
from sirtaki.torch.reproducible.sums import Seen

_MOST_SAMPLES = 16


def load(folder: Path, subject: Subject, sampler: ConstantBatchSampler) -> dict[str, Any]:
    """Make modules, optimizer and sampler what they were before a kept step.

    Returns:
        The other values of the state, by name.

    Raises:
        ValueError: The step does not fit this program, or is not whole.
    """
    note_replay(folder)
    if world_state.size() > 1:
        raise ValueError(
            f"a kept step is computed by one process, and this job has {world_state.size()}: give "
            "sirtaki replay the program without a launcher"
        )
    with kept_step(folder) as (facts, file):
        _require_equal(facts.settings, subject.all_settings)
        _warn_of_versions(facts.versions)
        try:
            values = torch.load(file, map_location="cpu", weights_only=True)
        except (RuntimeError, EOFError, pickle.UnpicklingError) as error:
            raise ValueError(f"the tensors of {folder} cannot be loaded: {error}") from None
    kept, here = values["models"], [tensors_of(each) for each in subject.models]
    _require_equal(_described(kept), _described(here))
    with torch.no_grad():
        for tensors, loaded in zip(here, kept, strict=True):
            for name, tensor in tensors.items():
                tensor.copy_(loaded[name])
    subject.optimizer.load_state_dict(values["optimizer"])
    sampler.load_state_dict({"epoch": values["epoch"], "processed_num": values["position"]})
    sampler.compute_only(facts.mine)
    samples = sampler.step_samples()
    if [samples[part] for part in facts.mine] != facts.samples:
        raise ValueError(
            "the kept step does not fit this program: its parts have other samples; replay it with "
            "the program and the data that kept it"
        )
    objects: dict[str, Any] = values["objects"]
    return objects


def _require_equal(kept: Mapping[str, Any], here: Mapping[str, Any]) -> None:
    for name in {**kept, **here}:
        if kept.get(name) != here.get(name):
            raise ValueError(
                f"the kept step does not fit this program: {name} is {kept.get(name)} in the step "
                f"and {here.get(name)} here; replay it with the program and the settings that "
                "kept it"
            )


def _described(models: Sequence[Mapping[str, torch.Tensor]]) -> dict[str, str]:
    found = {"the number of models": str(len(models))}
    for number, tensors in enumerate(models):
        of = f" of model {number}" if len(models) > 1 else ""
        for name, tensor in tensors.items():
            found[f"{name}{of}"] = f"{tuple(tensor.shape)} {tensor.dtype}"
    return found


def _warn_of_versions(kept: Mapping[str, str]) -> None:
    for name, here in versions().items():
        if kept.get(name) != here:
            print(
                f"sirtaki replay: warning: {name}: {kept.get(name)} in the kept step, {here} here; "
                "the bits may differ",
                file=sys.stderr,
                flush=True,
            )


class ReplayedParts(StepParts):
    """Yields the parts of a kept step, tells what is not finite, and ends the program."""

    def __init__(self, subject: Subject, plan: StepPlan, reported: dict[str, float]) -> None:
        super().__init__(subject.optimizer, subject.buffers, plan, reported)
        self._outputs = Outputs(subject.models)
        self._told = False

    def leave(self, error: BaseException | None) -> None:
        """See `StepParts`."""
        part = self._given
        assert part is not None
        super().leave(error)
        outputs, special = self._outputs.take(), self._special(part)
        found = outputs or special
        if found or error is not None:
            self._told = True
            found = found or f"all outputs are finite until {type(error).__name__}"
            print(f"part {part.index}, {_named(part.samples)}: {found}", flush=True)

    def _special(self, part: Part) -> str:
        """Return which gradient or reported value of a part is not finite, "" for none."""
        wrong = [f"the gradient of {one.name}" for one in self._sums if one.seen.special]
        for one in self._sums:
            one.seen = Seen()
        reported, _ = self._made[part.index]
        wrong += [f"the reported {name}" for name, v in reported.items() if not math.isfinite(v)]
        return f"all outputs of modules are finite, but not {wrong[0]}" if wrong else ""

    def _exchange(self, abandoned: bool = False) -> bool:
        if not self._told:
            print(f"all values are finite in {len(self.plan.mine)} parts", flush=True)
        sys.exit(0)


def _named(samples: Sequence[int]) -> str:
    more = f" and {len(samples) - _MOST_SAMPLES} more" if len(samples) > _MOST_SAMPLES else ""
    return f"samples {' '.join(map(str, samples[:_MOST_SAMPLES]))}{more}"


class Outputs:
    """Finds the first output of a module that is not finite."""

    def __init__(self, models: Sequence[torch.nn.Module]) -> None:
        self._found = ""
        self._names: dict[torch.nn.Module, str] = {}
        look = torch.compiler.disable(self._look)  # it would be traced with the module
        for model in models:
            for name, module in model.named_modules():
                if isinstance(module, torch.jit.ScriptModule):
                    continue  # it takes no hooks
                kind = type(module).__name__
                self._names[module] = f"{name} ({kind})" if name else f"the model ({kind})"
                module.register_forward_hook(look, with_kwargs=True)

    def take(self) -> str:
        """Return what was found since the last call, "" for nothing."""
        found, self._found = self._found, ""
        return found

    def _look(
        self, module: torch.nn.Module, given: Any, named: Mapping[str, Any], output: Any
    ) -> None:
        if self._found or _is_finite(output):
            return
        also = "its input is finite" if _is_finite((given, named)) else "its input is not either"
        self._found = f"the first output that is not finite is of {self._names[module]}; {also}"


def _is_finite(value: Any) -> bool:
    return all(bool(torch.isfinite(tensor).all()) for tensor in _tensors_in(value))


def _tensors_in(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        if value.layout is torch.strided:
            yield value.detach()
    elif isinstance(value, Mapping):
        for each in value.values():
            yield from _tensors_in(each)
    elif isinstance(value, (list, tuple)):
        for each in value:
            yield from _tensors_in(each)
