"""Which layers of a net file a phase, a level and stages keep."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sirtaki.caffe.errors import LayerError
from sirtaki.caffe.proto.schema import NetParameter


def filter_net(net: Any, phase: int, level: int = 0, stages: Sequence[str] = ()) -> Any:
    """The layers that are kept.

    Args:
        net: A NetParameter, upgraded; its own `state` gives the level and more stages.
        phase: TRAIN or TEST.
        level: Of the rules `min_level` and `max_level`; 0: the file's.
        stages: Of the rules `stage` and `not_stage`, besides the file's.

    Returns:
        A NetParameter with them and with the state that they were chosen by.

    Raises:
        LayerError: A layer has rules to include and rules to exclude it.
    """
    kept = NetParameter()
    kept.CopyFrom(net)
    del kept.layer[:]
    kept.state.phase = phase
    if level:
        kept.state.level = level
    kept.state.stage.extend(stages)
    for layer in net.layer:
        if layer.include and layer.exclude:
            raise LayerError(
                layer.name, layer.type, "has rules to include and to exclude it; give one kind"
            )
        if layer.include:
            keeps = any(_matches(rule, kept.state) for rule in layer.include)
        else:
            keeps = not any(_matches(rule, kept.state) for rule in layer.exclude)
        if keeps:
            kept.layer.add().CopyFrom(layer)
    return kept


def _matches(rule: Any, state: Any) -> bool:
    if rule.HasField("phase") and rule.phase != state.phase:
        return False
    if rule.HasField("min_level") and state.level < rule.min_level:
        return False
    if rule.HasField("max_level") and state.level > rule.max_level:
        return False
    stages = set(state.stage)
    return stages.issuperset(rule.stage) and stages.isdisjoint(rule.not_stage)
