"""`DiLoCo` and `LocalSGD`: optax optimizers that exchange parameters every so many steps."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from sirtaki.core.operations.compression import Compressor
from sirtaki.core.outer import OuterSchedule, cut_evenly, require_mix
from sirtaki.core.world.participants import size_of
from sirtaki.core.world.process_sets import ProcessSet, global_process_set
from sirtaki.jax.allreduce_ops import allreduce_tree
from sirtaki.jax.arrays import Compression
from sirtaki.jax.exchange_ops import broadcast_tree
from sirtaki.jax.optimizer import Transformation, made_transformation, require_transformation

Leaves = list[jax.Array]


class OuterState(NamedTuple):
    """State of `DiLoCo` and `LocalSGD`.

    Attributes:
        inner: That of the local transformation.
        step: The number of local steps.
        saved: The parameters after their last outer step.
        outer: The state of the outer transformation, for each fragment.
    """

    inner: Any
    step: jax.Array
    saved: Any
    outer: tuple[Any, ...]


class _Changing(NamedTuple):
    """What an outer step changes, all as leaves."""

    updates: Leaves
    saved: Leaves
    outer: tuple[Any, ...]


def DiLoCo(
    tx: Transformation,
    sync_every: int,
    outer_lr: float = 0.7,
    outer_momentum: float = 0.9,
    outer_optimizer: Transformation | None = None,
    fragments: int = 1,
    mix: float = 0.0,
    compression: type[Compressor] = Compression.none,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Return an optax transformation that steps on each rank alone, and exchanges now and then.

    Every `sync_every` steps the ranks average how far their parameters have moved since the last
    exchange, and an outer transformation moves the parameters of the last exchange by the mean; all
    go on from the result. The first exchange starts from the first rank's initial parameters. After
    the last step, average the parameters: ``params = hvd.allreduce_tree(params)``. Douillard et
    al., "DiLoCo" (arXiv 2311.08105); fragments and mix as in "Streaming DiLoCo" (arXiv 2501.18512).

    Args:
        tx: The local one, any optax transformation, or another pair of functions `init` and
            `update`. `update` is called with the parameters.
        sync_every: Steps from one exchange of a parameter to the next, 50 to 500 in the papers.
        outer_lr: The learning rate of the outer transformation, SGD with Nesterov momentum.
        outer_momentum: Its momentum.
        outer_optimizer: Another outer transformation.
        fragments: Cut the parameters into so many parts of about equal size. One is exchanged every
            ``sync_every / fragments`` steps, in turn.
        mix: What stays of the local parameters: ``mix * local + (1 - mix) * outer``.
        compression: Form of the exchanged changes, from `Compression`.
        process_set: The ranks that exchange; on other ranks `tx` works unchanged.

    Raises:
        TypeError: `tx` or `outer_optimizer` is no transformation.
        ValueError: Another argument is wrong.
    """
    outer = outer_optimizer or _nesterov(outer_lr, outer_momentum)
    exchange = _Exchange(outer, mix, compression, process_set)
    return _exchanging("hvd.DiLoCo", tx, sync_every, fragments, exchange)


def LocalSGD(
    tx: Transformation,
    sync_every: int,
    compression: type[Compressor] = Compression.none,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Return an optax transformation that steps on each rank alone, and averages now and then.

    Stich, "Local SGD Converges Fast and Communicates Little" (arXiv 1805.09767).

    Args:
        tx, sync_every, compression, process_set: As for `DiLoCo`.

    Raises:
        TypeError: `tx` is no transformation.
        ValueError: Another argument is wrong.
    """
    exchange = _Exchange(_nesterov(1.0, 0.0), 0.0, compression, process_set)
    return _exchanging("hvd.LocalSGD", tx, sync_every, 1, exchange)


def _nesterov(rate: float, momentum: float) -> Any:
    """Return SGD with Nesterov momentum, as optax and PyTorch have it."""

    def init(params: Leaves) -> Leaves:
        return [jnp.zeros_like(each) for each in params]

    def update(gradients: Leaves, speeds: Leaves, params: Any = None) -> tuple[Leaves, Leaves]:
        new = [momentum * v + g for v, g in zip(speeds, gradients, strict=True)]
        return [-rate * (g + momentum * v) for v, g in zip(new, gradients, strict=True)], new

    return made_transformation(init, update)


def _exchanging(
    name: str, tx: Transformation, sync_every: int, fragments: int, exchange: _Exchange
) -> Any:
    for each in (tx, exchange.outer):
        require_transformation(each)
    require_mix(name, exchange.mix)
    schedule = OuterSchedule(sync_every, fragments, 0)
    schedule.check(name)
    size_of(exchange.process_set)  # raises if init() was not called

    def init(params: Any) -> OuterState:
        leaves = jax.tree.leaves(params)
        # Copies, for jitted steps to which the caller donates both.
        saved = jax.tree.map(jnp.array, params)
        states = tuple(
            exchange.outer.init(_chosen(leaves, part)) for part in _cut(name, leaves, fragments)
        )
        return OuterState(tx.init(params), jnp.zeros((), jnp.int32), saved, states)

    def update(
        gradients: Any, state: OuterState, params: Any = None, **extra: Any
    ) -> tuple[Any, OuterState]:
        if params is None:
            raise ValueError(f"{name} needs the parameters: call update(gradients, state, params)")
        updates, inner = tx.update(gradients, state.inner, params, **extra)
        step = state.step + 1
        if not exchange.process_set.included():
            return updates, state._replace(inner=inner, step=step)
        leaves, structure = jax.tree.flatten(params)
        changing = _Changing(jax.tree.leaves(updates), jax.tree.leaves(state.saved), state.outer)
        turn = schedule.turn
        branches: list[Any] = [
            partial(exchange.step, number, part, step == turn * (number + 1), leaves)
            for number, part in enumerate(_cut(name, leaves, fragments))
        ]
        due = jnp.where(step % turn == 0, (step // turn - 1) % fragments, fragments)
        changed = jax.lax.switch(due, [*branches, lambda same: same], changing)
        new = OuterState(inner, step, jax.tree.unflatten(structure, changed.saved), changed.outer)
        return jax.tree.unflatten(structure, changed.updates), new

    return made_transformation(init, update)


class _Exchange(NamedTuple):
    """The outer step of a fragment."""

    outer: Transformation
    mix: float
    compression: type[Compressor]
    process_set: ProcessSet

    def step(
        self, number: int, part: Sequence[int], first: Any, params: Leaves, before: _Changing
    ) -> _Changing:
        """Return what the exchange of a fragment changes.

        number: of the fragment. part: the positions of its leaves. first: whether it is the
        fragment's first exchange. params: of the model before this step.
        """
        everywhere = self.process_set is global_process_set
        root = 0 if everywhere else (self.process_set.ranks or [0])[0]
        send = partial(broadcast_tree, root_rank=root, process_set=self.process_set)
        # Scripts broadcast parameters after `init`, too.
        saved = jax.lax.cond(first, send, lambda same: same, _chosen(before.saved, part))
        moved = [params[at] + before.updates[at] for at in part]
        differences = [
            _wide(old) - _wide(new.astype(old.dtype)) for old, new in zip(saved, moved, strict=True)
        ]
        mean = allreduce_tree(
            differences, process_set=self.process_set, compression=self.compression
        )
        mean = [each.astype(old.dtype) for each, old in zip(mean, saved, strict=True)]
        steps, state = self.outer.update(mean, before.outer[number], saved)
        after = _Changing([*before.updates], [*before.saved], tuple(before.outer))
        for at, old, step, local in zip(part, saved, steps, moved, strict=True):
            after.saved[at] = new = (old + step).astype(old.dtype)
            mixed = (1 - self.mix) * new + self.mix * local
            after.updates[at] = (mixed - params[at]).astype(before.updates[at].dtype)
        outer = (*before.outer[:number], state, *before.outer[number + 1 :])
        return after._replace(outer=outer)


def _chosen(leaves: Sequence[jax.Array], part: Sequence[int]) -> Leaves:
    return [leaves[at] for at in part]


def _cut(name: str, leaves: Leaves, fragments: int) -> list[list[int]]:
    if fragments > len(leaves):
        raise ValueError(
            f"{name}: fragments={fragments} must be at least 1 and at most the number of trained "
            f"parameters, {len(leaves)}"
        )
    return cut_evenly([each.nbytes for each in leaves], fragments)


def _wide(array: jax.Array) -> jax.Array:
    """Return an array with at least 32 bits an element."""
    return array.astype(jnp.promote_types(array.dtype, jnp.float32))
