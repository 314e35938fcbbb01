"""Batches of a size independent of the number of ranks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Sized

import torch

from sirtaki.core.world import state as world_state
from sirtaki.data import plan
from sirtaki.data.sampler import Position
from sirtaki.torch.reproducible.shares import Shares, Spent, dealt


class ConstantBatchSampler(torch.utils.data.Sampler[list[int]]):
    """Divides each step's batch into parts, so that survivors take over a lost rank's parts.

    The batch of a step has `parts` parts of `batch_size` samples. Rank r of n computes `passes` of
    them: every n-th one, starting at the r-th. So each step has the same samples in any world. Pass
    it to a loader as `batch_sampler`, call ``optimizer.share_batch(sampler.passes, sampler.parts)``
    in each new world, and step after `passes` batches; or iterate over ``state.parts()``. At the
    end of an epoch a few samples are repeated to fill the last step.

    Args:
        dataset: The dataset to sample; only its length matters.
        batch_size: Samples in a part.
        parts: At least the largest number of ranks, ideally a multiple of most sizes.
        shuffle: Whether the order is random and differs in each epoch.
        seed: The seed of the order; the same on all ranks.
        balance: Whether ``state.parts()`` gives slow ranks fewer parts: in proportion to their
            speeds, measured over seconds. A rank may get none for a while. Steps, not batches, are
            then what ``len()`` counts.

    Raises:
        ValueError: There are more ranks than parts, or no samples.
    """

    def __init__(
        self,
        dataset: Sized,
        batch_size: int,
        parts: int,
        shuffle: bool = True,
        seed: int = 0,
        balance: bool = False,
    ) -> None:
        if len(dataset) < 1 or batch_size < 1:
            raise ValueError("ConstantBatchSampler needs samples, and a positive batch_size")
        self.dataset = dataset
        self.batch_size = batch_size
        self.parts = parts
        self.shuffle = shuffle
        self.seed = seed
        self.balance = balance
        self.epoch = 0
        self.processed_num = 0
        # How many samples a loader has asked for, and the positions from which shares apply.
        self.given = 0
        self._deals: list[tuple[int, list[int]]] = []
        self._ordered: tuple[object, list[int]] | None = None
        self.reset()

    def reset(self) -> None:
        """Divide the parts among the ranks of the current world."""
        rank, size = plan.place_of(None)
        if size > self.parts:
            raise ValueError(
                f"ConstantBatchSampler: {size} ranks cannot share {self.parts} parts; give parts= "
                "at least --max-np"
            )
        self._rank = rank
        self.shares = Shares(self.parts, size)
        self._publish()
        self._deals = [(0, self._dealt())]
        self._spent = Spent(0, 0)

    @property
    def settings(self) -> dict[str, int]:
        """What the samples of parts depend on, by name."""
        return {
            "the number of parts": self.parts,
            "the batch size": self.batch_size,
            "shuffle": int(self.shuffle),
            "the seed": int(self.seed),
            "the number of samples": len(self.dataset),
        }

    def compute_only(self, parts: Sequence[int]) -> None:
        """Compute these parts of the next step, and no other."""
        self._deals = [(0, list(parts))]

    @property
    def mine(self) -> list[int]:
        """The numbers of this rank's parts in the next step."""
        return self._mine_at(self.processed_num)

    @property
    def passes(self) -> int:
        """How many parts of the next step this rank computes."""
        return len(self.mine)

    def set_epoch(self, epoch: int) -> None:
        """Begin an epoch, with all samples unused."""
        self.epoch = epoch
        self.processed_num = self.given = 0
        self._deals = [(0, self._deals[-1][1])]

    def _dealt(self) -> list[int]:
        return dealt(self.shares.counts)[self._rank]

    def _mine_at(self, position: int) -> list[int]:
        return next(mine for begin, mine in reversed(self._deals) if begin <= position)

    def add_time(self, us: int) -> Spent:
        """Add the time of a part, 0 for none; return what this rank has spent in this window."""
        self._spent = Spent(self._spent.us + us, self._spent.parts + (us > 0))
        return self._spent

    def note(self, spent: Sequence[Spent], given: int) -> None:
        """Note what all ranks have spent; share out the parts anew if a window is over.

        Args:
            spent: By rank, since the last window.
            given: How many samples of the epoch loaders have asked for, the most of any rank.
        """
        if not self.shares.update(spent):
            return
        self._spent = Spent(0, 0)
        self._publish()
        mine = self._dealt()
        if mine != self._deals[-1][1]:
            self._deals.append((max(given, self.after_step), mine))

    def _publish(self) -> None:
        """Let `sirtaki top` show the shares."""
        if world_state.is_initialized():
            world_state.current_world().parts = self.shares.counts

    def record_step(self) -> None:
        """Record that all ranks have done a step; call it before ``state.commit()``."""
        self.processed_num = self.after_step

    @property
    def after_step(self) -> int:
        """The number of samples used after the next step."""
        return min(self.processed_num + self.parts * self.batch_size, len(self.dataset))

    @property
    def steps_left(self) -> int:
        """The number of steps until the end of the epoch."""
        return -(-(len(self.dataset) - self.processed_num) // (self.parts * self.batch_size))

    def step_samples(self) -> list[list[int]]:
        """Return the samples of each part of the next step, on any rank."""
        return self._parts_at(self._order(), self.processed_num)

    def _order(self) -> list[int]:
        key = (len(self.dataset), self.shuffle, self.seed, self.epoch)
        if self._ordered is None or self._ordered[0] != key:
            order = plan.order(len(self.dataset), self.shuffle, (self.seed, self.epoch))
            self._ordered = (key, order.tolist())
        return self._ordered[1]

    def _parts_at(self, order: list[int], begin: int) -> list[list[int]]:
        step = self.parts * self.batch_size
        batch = order[begin : begin + step]
        while len(batch) < step:
            batch += order[: step - len(batch)]
        return [batch[at : at + self.batch_size] for at in range(0, step, self.batch_size)]

    def state_dict(self) -> Position:
        """Return the position in the epoch."""
        return Position(epoch=self.epoch, processed_num=self.processed_num)

    def load_state_dict(self, state_dict: Position) -> None:
        """Continue from the position that `state_dict` returned, on any number of ranks."""
        self.epoch = state_dict["epoch"]
        self.processed_num = state_dict["processed_num"]

    def __iter__(self) -> Iterator[list[int]]:
        order = self._order()
        for begin in range(self.processed_num, len(order), self.parts * self.batch_size):
            self.given = begin + self.parts * self.batch_size
            parts = self._parts_at(order, begin)
            yield from (parts[part] for part in self._mine_at(begin))

    def __len__(self) -> int:
        return self.steps_left if self.balance else self.steps_left * self.passes
