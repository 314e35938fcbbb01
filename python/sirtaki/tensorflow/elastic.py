"""Elastic training with TensorFlow; mirrors ``horovod.tensorflow.elastic``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from sirtaki.core.operations.objects import broadcast_object
from sirtaki.core.world import state as world_state
from sirtaki.elastic import HostsUpdatedInterrupt, ObjectState, State, run, run_fn, sample_seed
from sirtaki.elastic.state import Version, require_shapes
from sirtaki.tensorflow.functions import broadcast_variables

if TYPE_CHECKING:
    from sirtaki.keras.elastic import KerasState as TensorFlowKerasState

__all__ = [
    "HostsUpdatedInterrupt",
    "ObjectState",
    "State",
    "TensorFlowKerasState",
    "TensorFlowState",
    "run",
    "run_fn",
    "sample_seed",
]


class TensorFlowState(ObjectState):
    """State of TensorFlow variables.

    Args:
        variables: The variables, in the same order on all ranks.
        session: None: sessions of TensorFlow 1 have no elastic state.
        kwargs: Picklable objects, samplers and loaders; they become attributes.

    Raises:
        NotImplementedError: A session is given.
    """

    def __init__(
        self, variables: Sequence[Any] | None = None, session: Any = None, **kwargs: Any
    ) -> None:
        if session is not None:
            raise NotImplementedError(
                "TensorFlowState(session=...): sessions of TensorFlow 1 have no elastic state; use "
                "eager variables"
            )
        self.variables = list(variables or [])
        self._save_variables()
        super().__init__(broadcast_object, world_state.rank, **kwargs)

    def _save_variables(self) -> None:
        self._saved_values = [variable.numpy().copy() for variable in self.variables]

    def save(self) -> None:
        """Copy the state into this process's memory."""
        self._save_variables()
        super().save()

    def restore(self) -> None:
        """Restore the last saved state."""
        for variable, value in zip(self.variables, self._saved_values, strict=True):
            variable.assign(value)
        super().restore()

    def state_dict(self) -> dict[str, Any]:
        """Return the data for a checkpoint: the current state, not the last committed one."""
        values = [variable.numpy() for variable in self.variables]
        return {"variables": values, "attributes": super().state_dict()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load the result of `state_dict`, and commit it.

        Raises:
            ValueError: It belongs to other variables.
        """
        require_shapes([variable.shape for variable in self.variables], state_dict["variables"])
        for variable, value in zip(self.variables, state_dict["variables"], strict=True):
            variable.assign(value)
        super().load_state_dict(state_dict["attributes"])

    def _sync_from(self, root: int, version: Version) -> None:
        if self.variables:
            broadcast_variables(self.variables, root_rank=root)
        super()._sync_from(root, version)


def __getattr__(name: str) -> Any:
    if name == "TensorFlowKerasState":  # Keras is slow to import
        from sirtaki.keras.elastic import KerasState

        return KerasState
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
