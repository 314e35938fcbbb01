"""Selection of a net file's layers by phase, level and stages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sirtaki_caffe.errors import LayerError
from sirtaki_caffe.proto.schema import NetParameter
from sirtaki_caffe.proto.text import layer_lines


def filter_net(net: Any, phase: int, level: int = 0, stages: Sequence[str] = ()) -> Any:
    """Return the selected layers.

    Args:
        net: A NetParameter, upgraded; its own `state` gives the level and further stages.
        phase: TRAIN or TEST.
        level: The level for the rules `min_level` and `max_level`; 0: the file's.
        stages: The stages for the rules `stage` and `not_stage`, besides the file's.

    Returns:
        A NetParameter with these layers and the state that selected them.

    Raises:
        LayerError: A layer has both include and exclude rules.
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


def repeated_names(net: Any, file: str | Path = "") -> list[str]:
    """Return a warning for each name shared by several layers.

    Args:
        net: A NetParameter, filtered.
        file: The file of the net; "" without one.
    """
    counts = Counter(layer.name for layer in net.layer)
    return [_repeated(name, count, file) for name, count in counts.items() if count > 1]


def _repeated(name: str, count: int, file: str | Path) -> str:
    what = f"several layers have the name '{name}'" if name else f"{count} layers have no name"
    text = f"{what}; weights go by names, so files and test nets "
    text += "cannot tell them apart: give each layer a name of its own"
    lines = layer_lines(file, name) if file and name else []
    where = f" (lines {', '.join(map(str, lines))})" if lines else ""
    return f"{file}:{lines[1]}: {text}{where}" if len(lines) > 1 else text


def _matches(rule: Any, state: Any) -> bool:
    if rule.HasField("phase") and rule.phase != state.phase:
        return False
    if rule.HasField("min_level") and state.level < rule.min_level:
        return False
    if rule.HasField("max_level") and state.level > rule.max_level:
        return False
    stages = set(state.stage)
    return stages.issuperset(rule.stage) and stages.isdisjoint(rule.not_stage)
