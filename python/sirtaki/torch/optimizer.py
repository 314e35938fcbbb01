"""DistributedOptimizer: an optimizer that steps with gradients reduced over all ranks."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from sirtaki.core.operations.reduce_ops import Adasum, Average
from sirtaki.core.operations.reduction import Reduction, predivided
from sirtaki.core.world import state
from sirtaki.core.world.participants import size_of
from sirtaki.core.world.process_sets import ProcessSet, global_process_set
from sirtaki.torch.compression import (
    Compression,
    Compressor,
    TransformingCompressor,
    feeds_back,
)
from sirtaki.torch.gradients.adasum_optimizer import (
    _DistributedAdasumOptimizer as _DistributedAdasumOptimizer,  # for Horovod's module layout
)
from sirtaki.torch.gradients.adasum_optimizer import distributed_adasum_optimizer
from sirtaki.torch.gradients.parameters import name_of_unnamed, name_parameters, partition
from sirtaki.torch.gradients.reducer import GradientReducer
from sirtaki.torch.gradients.wrapping import Wrapper, adopt
from sirtaki.torch.ops.allreduce import allreduce
from sirtaki.torch.reproducible.optimizer import reproducible_optimizer

# Beside "state" and "param_groups" in the state of the optimizer.
_SHARED_KEY = "compression_factors"


class _DistributedOptimizer(Wrapper):
    """Mixed into the class of the wrapped optimizer, whose state it shares."""

    _reducer: GradientReducer
    _reduction: Reduction
    _parameter_names: dict[torch.Tensor, str]
    _unnamed: str
    _divisor: int
    _active: bool
    _synchronized: bool
    _should_synchronize: bool

    @property
    def backward_passes_per_step(self) -> int:
        """The number of backward passes whose gradients are summed before their reduction."""
        return self._reducer.passes

    def set_backward_passes_per_step(self, passes: int) -> None:
        """Sum the gradients of `passes` backward passes before reducing them, from now on.

        Raises:
            ValueError: `passes` is not positive.
            RuntimeError: gradients are being reduced.
        """
        if passes <= 0:
            raise ValueError("backward_passes_per_step must be > 0")
        self._reducer.passes = passes

    def share_batch(self, passes: int, total: int) -> None:
        """Step with the mean of `total` gradients, of which this rank computes `passes`.

        Ranks may compute different numbers of gradients, so that a step's batch can be the same in
        worlds of different sizes.

        Args:
            passes: This rank's backward passes in each step from now on.
            total: The total of all ranks; the same on all of them.

        Raises:
            ValueError: `passes` is not positive, or the gradients are not averaged.
            RuntimeError: gradients are being reduced.
        """
        if self._reduction.op != Average:
            raise ValueError("share_batch() needs an optimizer with op=Average")
        self.set_backward_passes_per_step(passes)
        self._reducer.divide_by(total)
        self._divisor = total

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group of parameters; their gradients are reduced one by one."""
        super().add_param_group(param_group)
        group_index = len(self.param_groups) - 1
        for i, p in enumerate(self.param_groups[group_index]["params"]):
            name = self._parameter_names.setdefault(p, f"{self._unnamed}.{group_index}.{i}")
            if self._active:
                self._reducer.add_bucket([p], [name])

    def state_dict(self) -> dict[str, Any]:
        """Return the wrapped optimizer's state, with the residuals of compression."""
        saved = super().state_dict()
        self._reducer.feedback.save(saved, self._parameters(), state.rank())
        if (shared := _DistributedOptimizer.shared_state(self)) is not None:
            saved[_SHARED_KEY] = shared
        return saved

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load the wrapped optimizer's state; gradients being reduced are dropped."""
        self._forget_gradients()
        super().load_state_dict(state_dict)
        self._reducer.feedback.load(state_dict, self._parameters(), state.rank())
        _DistributedOptimizer.load_shared_state(self, state_dict.get(_SHARED_KEY))

    def shared_state(self) -> Any:
        """See `Wrapper`: what a transformation of gradients keeps."""
        transformation = self._reducer.transformation
        return None if transformation is None else transformation.shared([*self._parameters()])

    def load_shared_state(self, state: Any) -> None:
        """See `Wrapper`."""
        if self._reducer.transformation is not None:
            self._reducer.transformation.load_shared(state, [*self._parameters()])

    def _reduce_within(self, process_set: ProcessSet) -> None:
        """Reduce gradients over other ranks from now on."""
        self._reduction = self._reduction._replace(process_set=process_set)
        self._reducer.reduce_within(process_set)

    @property
    def _holds_gradients(self) -> bool:
        return self._reducer.busy

    def _forget_gradients(self) -> None:
        """Drop the gradients being reduced."""
        self._reducer.reset()
        self._synchronized = False
        self._should_synchronize = True

    def _parameters(self) -> Iterator[torch.Tensor]:
        return (p for group in self.param_groups for p in group["params"])

    def synchronize(self) -> None:
        """Wait until all gradients are reduced, so that you can change them before `step`.

        Parameters without a gradient take part with zeros. Use `skip_synchronize` around the
        following `step`.

        Raises:
            HorovodInternalError: a reduction failed; the message contains the reason.
            RuntimeError: a gradient was changed since backward, and so while it was being reduced,
                or its reduction could not be started during backward.
        """
        if self._active:
            self._reducer.finish()
        elif self._divisor > 1:
            for parameter in self._parameters():
                if parameter.grad is not None:
                    parameter.grad.div_(self._divisor)
        self._synchronized = True

    @contextmanager
    def skip_synchronize(self) -> Iterator[None]:
        """Within this context `step` uses the gradients without reducing them."""
        self._should_synchronize = False
        try:
            yield
        finally:
            self._should_synchronize = True

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Wait until all gradients are reduced, then do the wrapped optimizer's step.

        Args:
            closure: computes loss and gradients; the gradients are reduced after each call.

        Returns:
            The wrapped optimizer's result: the closure's loss on this rank. With LBFGS, whose steps
            depend on the loss, it is reduced like the gradients.
        """
        if not self._should_synchronize:
            self._synchronized = False
            return super().step(closure)
        if closure is not None:
            return self._step_with(closure)
        if self._synchronized:
            warnings.warn(
                "optimizer.step() called without optimizer.skip_synchronize() context after "
                "optimizer.synchronize(). Put step() into that context if the gradients are "
                "complete.",
                stacklevel=2,
            )
        self._synchronize_once()
        self._synchronized = False
        return super().step()

    def _synchronize_once(self) -> None:
        if self._reducer.busy or not self._synchronized:
            self.synchronize()

    def _step_with(self, closure: Callable[[], Any]) -> Any:
        if self._reducer.busy:
            self.synchronize()

        def reduced_closure() -> Any:
            self._synchronized = False
            loss = closure()
            self._synchronize_once()
            return self._reduce_loss(loss)

        try:
            return super().step(reduced_closure)
        finally:
            self._synchronized = False

    def _reduce_loss(self, loss: Any) -> Any:
        # Ranks that disagree on the loss would end their searches at different points.
        if not self._active or not isinstance(self, torch.optim.LBFGS):
            return loss
        if not isinstance(loss, torch.Tensor):
            loss = torch.tensor(loss, device="cpu")
        return allreduce(
            loss.detach(),
            op=self._reduction.op,
            process_set=self._reduction.process_set,
        )

    def zero_grad(self, *args: Any, **kwargs: Any) -> None:
        """Reset the gradients, as the wrapped optimizer does.

        It waits for gradients being reduced and discards them, on all ranks: a model through which
        another one is trained, such as the discriminator of a GAN, needs no step.

        Args:
            args: for the wrapped optimizer.
            kwargs: as `args`.

        Raises:
            HorovodInternalError: a reduction failed; the message contains the reason.
        """
        if self._reducer.busy:
            self._reducer.discard()
            self._synchronized = False
        super().zero_grad(*args, **kwargs)

    @property
    def _step_supports_amp_scaling(self) -> bool:
        """Return whether the wrapped optimizer unscales gradients itself.

        `GradScaler.step` reads it before it checks gradients or calls the optimizer. Version
        counters do not show its earlier changes to them.
        """
        if self._reducer.busy:
            raise RuntimeError(
                "GradScaler met gradients that are being reduced: call optimizer.synchronize() "
                "before scaler.unscale_(optimizer) and scaler.step(optimizer), and the latter "
                "within `with optimizer.skip_synchronize():`"
            )
        return bool(self.__dict__.get("_step_supports_amp_scaling", False))

    @_step_supports_amp_scaling.setter
    def _step_supports_amp_scaling(self, supports: bool) -> None:
        self.__dict__["_step_supports_amp_scaling"] = supports


# Without this mark, torch wraps `step` to run hooks that the inner step already runs.
_DistributedOptimizer.step.hooked = True  # type: ignore[attr-defined]


def DistributedOptimizer(
    optimizer: torch.optim.Optimizer,
    named_parameters: Iterable[tuple[str, torch.Tensor]] | None = None,
    compression: type[Compressor] = Compression.none,
    backward_passes_per_step: int = 1,
    op: int = Average,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: int | Sequence[Sequence[torch.Tensor]] | None = None,
    sparse_as_dense: bool = False,
    process_set: ProcessSet = global_process_set,
    skip_unused: bool = False,
    reproducible: bool = False,
) -> torch.optim.Optimizer:
    """Return an optimizer that reduces gradients over all ranks before each step.

    The result's class is derived from the optimizer's own, with the same parameter groups and
    state, and adds `synchronize`, `skip_synchronize` and `set_backward_passes_per_step`. Each
    gradient is reduced in place as soon as backward has computed it.

    Args:
        optimizer: any PyTorch optimizer.
        named_parameters: names for error messages and the timeline, from
            `model.named_parameters()`; if given, all parameters of the optimizer must be named.
        compression: form of the gradients on the wire, from `Compression`.
        backward_passes_per_step: the number of gradients summed on the rank before they are
            reduced.
        op: Average (default), Sum, or Adasum, which combines the steps of the ranks instead of
            the gradients.
        gradient_predivide_factor: with Average, the part f of the division by the number of ranks n
            that precedes the sum: gradients are divided by f before it and by n / f after it.
        num_groups: deprecated, use groups.
        groups: parameters whose gradients are reduced together: lists of them (others are reduced
            one by one), or a number of groups. By default each gradient is reduced as soon as
            possible, and small ones (16 KiB at most) are reduced together.
        sparse_as_dense: convert sparse gradients to dense for the reduction; the wrapped optimizer
            receives them sparse.
        process_set: the ranks that take part; on other ranks the optimizer works unchanged.
        skip_unused: skip parameters for which no rank has a gradient, as the wrapped optimizer
            does. The ranks agree on them in each step, with one more small reduction. Otherwise
            they get zero gradients, which momentum and weight decay act on.
        reproducible: take gradients from ``TorchState.parts()``, whose sums have the same bits on
            any number of ranks. With Average they are divided by the number of parts.

    Raises:
        TypeError: `optimizer` is not a `torch.optim.Optimizer`.
        ValueError: another argument is wrong.
    """
    _require_arguments(optimizer, compression, backward_passes_per_step, op, skip_unused)
    reduction = predivided(op, gradient_predivide_factor, process_set)
    if num_groups:
        warnings.warn("num_groups is deprecated, use groups", DeprecationWarning, stacklevel=2)
        groups = num_groups if groups is None else groups

    ranks = size_of(process_set)
    unnamed = name_of_unnamed(process_set)
    names = name_parameters(optimizer.param_groups, named_parameters, unnamed)
    if reproducible:
        unfit = {
            "compression": compression is not Compression.none,
            "backward_passes_per_step": backward_passes_per_step != 1,
            "gradient_predivide_factor": gradient_predivide_factor != 1.0,
            "groups": groups is not None,
            "sparse_as_dense": sparse_as_dense,
            "process_set": process_set is not global_process_set,
        }
        return reproducible_optimizer(optimizer, names, op, unfit)
    buckets = partition(optimizer.param_groups, names, groups, process_set)
    if op == Adasum and ranks > 1 and process_set.included():
        return distributed_adasum_optimizer(
            optimizer, names, unnamed, buckets, compression, process_set
        )

    reducer = GradientReducer(
        reduction, compression, backward_passes_per_step, sparse_as_dense, skip_unused
    )
    distributed = adopt(optimizer, _DistributedOptimizer)
    distributed._reduction = reduction
    distributed._reducer = reducer
    distributed._parameter_names = names
    distributed._unnamed = unnamed
    distributed._divisor = 1
    distributed._synchronized = False
    distributed._should_synchronize = True
    distributed._active = bool(process_set.included()) and (
        ranks > 1 or state.current_world().config.elastic
    )
    if distributed._active:
        for bucket in buckets:
            reducer.add_bucket(bucket, [names[p] for p in bucket])
    return distributed


def _require_arguments(
    optimizer: torch.optim.Optimizer,
    compression: type[Compressor],
    passes: int,
    op: int,
    skip_unused: bool,
) -> None:
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise TypeError(f"expected a torch.optim.Optimizer, got {type(optimizer).__name__}")
    if isinstance(optimizer, Wrapper):
        raise ValueError(optimizer.refusal)
    if passes <= 0:
        raise ValueError("backward_passes_per_step must be > 0")
    transforms = isinstance(compression, type) and issubclass(compression, TransformingCompressor)
    if op == Adasum and (transforms or feeds_back(compression)):
        name = compression.__qualname__
        raise ValueError(f"op=Adasum cannot be used with {name}, which is for sums")
    if op == Adasum and skip_unused:
        raise ValueError("op=Adasum cannot be used with skip_unused, which is for gradients")
