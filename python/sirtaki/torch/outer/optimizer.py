"""`DiLoCo` and `LocalSGD`: optimizers that exchange parameters every so many steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, cast

import torch

from sirtaki.core.operations.objects import broadcast_object
from sirtaki.core.outer import OuterSchedule, require_mix
from sirtaki.core.world import state
from sirtaki.core.world.participants import size_of
from sirtaki.core.world.process_sets import ProcessSet, global_process_set
from sirtaki.core.world.registration import add_host_sets
from sirtaki.torch.compression import Compression, Compressor
from sirtaki.torch.functions import broadcast_parameters
from sirtaki.torch.gradients.optimizer_state import broadcast_optimizer_state, options_of
from sirtaki.torch.gradients.wrapping import Wrapper, adopt
from sirtaki.torch.optimizer import _DistributedOptimizer
from sirtaki.torch.outer.fragments import cut
from sirtaki.torch.outer.steps import OuterSettings, OuterSteps

# Beside "state" and "param_groups" in the state of the optimizer.
_KEY = "outer"


class OuterOptimizer(Wrapper):
    """Mixed into the class of the local optimizer, whose state it shares."""

    _outer: OuterSteps
    _scales_itself: bool
    refusal = (
        "the optimizer exchanges parameters every so many steps: wrap a DistributedOptimizer in "
        "hvd.DiLoCo, not the reverse"
    )

    @property
    def _step_supports_amp_scaling(self) -> bool:
        """GradScaler calls `step` after an infinity too, so that this rank misses no exchange."""
        # Raises in a `DistributedOptimizer` whose gradients are being reduced.
        getattr(super(), "_step_supports_amp_scaling", None)
        return True

    @_step_supports_amp_scaling.setter
    def _step_supports_amp_scaling(self, supports: bool) -> None:
        self.__dict__["_step_supports_amp_scaling"] = supports

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Do the local optimizer's step, and an outer one if it is due.

        Args:
            closure: For the local optimizer.

        Returns:
            The local optimizer's result.

        Raises:
            ValueError: Before the first step, settings or parameters differ among ranks.
            RuntimeError: The model has other parameters than before.
            HorovodInternalError: A rank was lost.
        """
        self._outer.begin()
        if self._scales_itself:
            result = super().step(closure)
        else:
            with self._without_scaler() as usable:
                result = super().step(closure) if usable else None
        self._outer.count()
        return result

    @contextmanager
    def _without_scaler(self) -> Iterator[bool]:
        """Do what a GradScaler leaves to such optimizers; yields whether gradients are finite.

        Meanwhile hide what it has set, which the local optimizer does not expect.
        """
        names = [name for name in ("grad_scale", "found_inf") if name in self.__dict__]
        given: dict[str, Any] = {name: self.__dict__.pop(name) for name in names}
        usable = not bool(given.get("found_inf", False))
        try:
            if usable and given.get("grad_scale") is not None:
                for group in self.param_groups:
                    for param in group["params"]:
                        if param.grad is not None:
                            param.grad.div_(given["grad_scale"].to(param.grad.device))
            yield usable
        finally:
            self.__dict__.update(given)

    def finish(self) -> None:
        """Complete an exchange that runs, and average the parameters; all ranks call it together.

        Afterwards all ranks have the same parameters.
        """
        self._outer.finish()

    @property
    def outer_steps(self) -> int:
        """The number of outer steps so far."""
        return self._outer.turns

    def rejoin(self, root_rank: int) -> None:
        """Go on in another world from the outer state of one of its ranks; all ranks call it.

        Ranks at the root's outer step keep their own parameters and local state, except for
        parameters in flight when a rank was lost. The others take the parameters of that step, and
        start with an empty local state.

        Args:
            root_rank: The rank whose outer state is sent.
        """
        began, options = broadcast_object(
            (self._outer.began, options_of(self)), root_rank, "outer.rejoin"
        )
        if not began:
            broadcast_parameters(self._outer.named(), root_rank)
            broadcast_optimizer_state(self, root_rank)
        elif not self._outer.adopt(root_rank):
            self.state.clear()
            for group, values in zip(self.param_groups, options, strict=True):
                group.update(values)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Raise ValueError: the parameters are known when the optimizer is made."""
        raise ValueError(
            f"{self._outer.settings.optimizer} takes no more parameters: add the group to the "
            "optimizer before you wrap it"
        )

    def state_dict(self) -> dict[str, Any]:
        """Return the local optimizer's state, with that of the outer steps in "outer"."""
        return {**super().state_dict(), _KEY: self._outer.state()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load what `state_dict` returned, or the state of a local optimizer alone."""
        super().load_state_dict({k: v for k, v in state_dict.items() if k != _KEY})
        if _KEY in state_dict:
            self._outer.load(state_dict[_KEY])

    def shared_state(self) -> tuple[dict[str, Any], Any]:
        """See `Wrapper`."""
        return self._outer.state(), super().shared_state()

    def load_shared_state(self, state: Any) -> None:
        """See `Wrapper`."""
        outer, inner = state
        self._outer.load(outer)
        super().load_shared_state(inner)


# Without this mark, torch wraps `step` to run hooks that the inner step already runs.
OuterOptimizer.step.hooked = True  # type: ignore[attr-defined]


def DiLoCo(
    optimizer: torch.optim.Optimizer,
    model: torch.nn.Module,
    sync_every: int,
    outer_lr: float = 0.7,
    outer_momentum: float = 0.9,
    outer_optimizer: Callable[[list[torch.Tensor]], torch.optim.Optimizer] | None = None,
    fragments: int | Sequence[torch.nn.Module] = 1,
    delay: int = 0,
    mix: float = 0.0,
    compression: type[Compressor] = Compression.none,
    process_set: ProcessSet = global_process_set,
    between: str = "ranks",
) -> torch.optim.Optimizer:
    """Return an optimizer that steps on each rank alone, and exchanges changes every so many steps.

    Every `sync_every` steps the ranks average how far their parameters have moved since the last
    exchange, and an outer optimizer steps the parameters of the last exchange by the mean; all go
    on from the result. The state of `optimizer` stays on its rank. Call ``finish()`` after the last
    step: it averages the parameters. Douillard et al., "DiLoCo" (arXiv 2311.08105); fragments,
    delay and mix as in "Streaming DiLoCo" (arXiv 2501.18512).

    Args:
        optimizer: The local one, any of PyTorch's.
        model: Whose parameters it trains. Floating-point buffers are averaged at each exchange.
        sync_every: Steps from one exchange of a parameter to the next, 50 to 500 in the papers.
        outer_lr: The learning rate of the outer optimizer, SGD with Nesterov momentum.
        outer_momentum: Its momentum.
        outer_optimizer: A function that makes another outer optimizer from parameters.
        fragments: A number: cut the model into so many parts of about equal size; or a list of
            modules. One is exchanged every ``sync_every / fragments`` steps, in turn.
        delay: Steps between the start of an exchange and its use; it runs meanwhile.
        mix: What stays of the local parameters: ``mix * local + (1 - mix) * outer``.
        compression: Form of the exchanged changes, from `Compression`; what it loses is added to
            the next exchange.
        process_set: The ranks that exchange; on other ranks the local optimizer works unchanged.
        between: ``"ranks"``, or ``"hosts"``: `optimizer` is a `DistributedOptimizer`, which from
            now on averages gradients over the ranks of this host only. A host counts as often as it
            has ranks.

    Raises:
        TypeError: `optimizer` is not a `torch.optim.Optimizer`.
        ValueError: Another argument is wrong.
    """
    if between != "ranks":
        _require_hosts(optimizer, between, process_set)
    if outer_optimizer is None:
        outer_optimizer = partial(
            torch.optim.SGD, lr=outer_lr, momentum=outer_momentum, nesterov=outer_momentum > 0
        )
    wrapped = _wrapped(
        "hvd.DiLoCo", optimizer, model, sync_every, fragments, delay, mix, compression,
        process_set, outer_optimizer,
    )  # fmt: skip
    if between == "hosts":
        cast("_DistributedOptimizer", wrapped)._reduce_within(add_host_sets())
    return wrapped


def _require_hosts(optimizer: torch.optim.Optimizer, between: str, process_set: ProcessSet) -> None:
    """Raise ValueError unless the optimizer can average within hosts."""
    if between != "hosts":
        raise ValueError(f'hvd.DiLoCo: between={between!r} must be "ranks" or "hosts"')
    if not isinstance(optimizer, _DistributedOptimizer):
        raise ValueError(
            'hvd.DiLoCo: between="hosts" needs an hvd.DistributedOptimizer, which averages '
            f"gradients within each host, got {type(optimizer).__name__}"
        )
    if {process_set, optimizer._reduction.process_set} != {global_process_set}:
        raise ValueError(
            'hvd.DiLoCo: between="hosts" is for all ranks: leave process_set out, here and of the '
            "DistributedOptimizer"
        )
    if state.current_world().config.elastic:
        raise ValueError(
            'hvd.DiLoCo: between="hosts" is not for elastic jobs, in which hosts change; exchange '
            "between all ranks"
        )


def LocalSGD(
    optimizer: torch.optim.Optimizer,
    model: torch.nn.Module,
    sync_every: int,
    compression: type[Compressor] = Compression.none,
    process_set: ProcessSet = global_process_set,
) -> torch.optim.Optimizer:
    """Return an optimizer that steps on each rank alone, and averages parameters now and then.

    Stich, "Local SGD Converges Fast and Communicates Little" (arXiv 1805.09767).

    Args:
        optimizer, model, sync_every, compression, process_set: As for `DiLoCo`.

    Raises:
        TypeError: `optimizer` is not a `torch.optim.Optimizer`.
        ValueError: Another argument is wrong.
    """
    return _wrapped(
        "hvd.LocalSGD", optimizer, model, sync_every, 1, 0, 0.0, compression, process_set,
        partial(torch.optim.SGD, lr=1.0),
    )  # fmt: skip


def _wrapped(
    name: str,
    optimizer: torch.optim.Optimizer,
    model: torch.nn.Module,
    sync_every: int,
    fragments: int | Sequence[torch.nn.Module],
    delay: int,
    mix: float,
    compression: type[Compressor],
    process_set: ProcessSet,
    outer_optimizer: Callable[[list[torch.Tensor]], torch.optim.Optimizer],
) -> torch.optim.Optimizer:
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise TypeError(f"{name} needs a torch.optim.Optimizer, got {type(optimizer).__name__}")
    if isinstance(optimizer, OuterOptimizer):
        raise ValueError(f"{name}: the optimizer exchanges parameters already")
    require_mix(name, mix)
    if getattr(compression, "kind", None) == "powersgd":  # which is for matrices
        raise ValueError(
            f"{name}: {compression.__qualname__} is for gradients of DistributedOptimizer: choose "
            "Compression.topk, int4, int8, bf16 or none"
        )
    size_of(process_set)  # raises if init() was not called
    parts = cut(name, model, optimizer, fragments)
    schedule = OuterSchedule(sync_every, len(parts), delay)
    schedule.check(name)
    settings = OuterSettings(name, schedule, mix, compression, process_set)
    wrapped = adopt(optimizer, OuterOptimizer)
    wrapped._outer = OuterSteps(settings, parts, model, outer_optimizer)
    wrapped._scales_itself = "_step_supports_amp_scaling" in optimizer.__dict__
    return wrapped
