"""Optimizers that take over another optimizer's identity and extend its behaviour."""

from __future__ import annotations

from typing import Any, NoReturn, SupportsIndex, TypeVar, cast

import torch


class Wrapper(torch.optim.Optimizer):
    """Mixed into the class of the wrapped optimizer, with which it shares groups and state."""

    # Why `DistributedOptimizer` does not wrap it.
    refusal = "the optimizer is a DistributedOptimizer already"

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load the wrapped optimizer's state."""
        groups, state = self.param_groups, self.state
        super().load_state_dict(state_dict)
        # Holders of the wrapped optimizer, such as learning rate schedulers, continue to use the
        # same lists and dictionaries.
        for group, loaded in zip(groups, self.param_groups, strict=True):
            if group is not loaded:
                group.clear()
                group.update(loaded)
        if state is not self.state:
            state.clear()
            state.update(self.state)
        self.param_groups, self.state = groups, state

    def shared_state(self) -> Any:
        """Return state beside that of the wrapped optimizer, the same on all ranks; None: none."""
        return None

    def load_shared_state(self, state: Any) -> None:
        """Load what `shared_state` returned on another rank."""

    def __deepcopy__(self, memo: dict[int, Any]) -> NoReturn:
        _refuse_copy()

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        _refuse_copy()


def _refuse_copy() -> NoReturn:
    raise TypeError(
        "a distributed optimizer cannot be copied or pickled, because it belongs to the parameters "
        "of one model: save optimizer.state_dict(), make the optimizer of the copy anew, wrap it "
        "as this one was, and load the state into it"
    )


Added = TypeVar("Added", bound=Wrapper)


def adopt(optimizer: torch.optim.Optimizer, added: type[Added]) -> Added:
    """Return an optimizer of a new class, derived from `added` and the optimizer's own class.

    It shares the parameter groups, state and hooks of the given one.
    """
    own = type(optimizer)
    # Programs look for "horovod" in the printed class to detect a wrapped optimizer.
    namespace = {"__doc__": own.__doc__, "__module__": "horovod.torch.optimizer"}
    distributed = cast("type[Added]", type(own.__name__, (added, own), namespace))
    wrapper = distributed.__new__(distributed)
    wrapper.__dict__.update(optimizer.__dict__)
    # A learning rate scheduler stores its own `step` there, bound to the wrapped optimizer.
    wrapper.__dict__.pop("step", None)
    # It would warn that the wrapped optimizer has not stepped.
    optimizer._opt_called = True  # type: ignore[attr-defined]
    return wrapper
