"""Which layers of a net file a phase, a level and stages keep."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sirtaki_caffe.errors import LayerError
from sirtaki_caffe.proto.schema import NetParameter
from sirtaki_caffe.proto.text import layer_lines


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


def repeated_names(net: Any, file: str | Path = "") -> list[str]:
    """A warning for each name that several layers have.

    Args:
        net: A NetParameter, filtered.
        file: Where it was read from; "": from no file.
    """
    counts = Counter(layer.name for layer in net.layer if layer.name)
    return [_repeated(name, file) for name, count in counts.items() if count > 1]


def _repeated(name: str, file: str | Path) -> str:
    text = f"several layers have the name '{name}'; weights go by names, so files and test nets "
    text += "cannot tell them apart: give each layer a name of its own"
    lines = layer_lines(file, name) if file else []
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
