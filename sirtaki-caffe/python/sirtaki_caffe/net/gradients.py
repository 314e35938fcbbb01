"""The layers that need gradients: those from a loss back to learnable params."""

from __future__ import annotations

from collections.abc import Sequence

from sirtaki_caffe.layers.base import Param
from sirtaki_caffe.net.step import Step


def settle_gradients(steps: Sequence[Step], *, force: bool) -> None:
    """Set `wants`, `needs_backward` and `complete` of every step.

    Args:
        steps: The net's steps, in order.
        force: Whether gradients go to every possible bottom, `force_backward` of the net.

    Raises:
        LayerError: A layer's `propagate_down` does not name each bottom, or requests a gradient
            that the layer lacks.
    """
    _from_what_learns(steps)
    _only_towards_losses(steps)
    if force:
        for step in steps:
            step.needs_backward = bool(step.bottoms or step.layer.params)
            step.wants = [
                wants or place not in step.layer.no_gradient_to
                for place, wants in enumerate(step.wants)
            ]
    for step in steps:
        if step.needs_backward:
            _refuse_impossible(step)
        for param in step.layer.params:
            param.data.requires_grad_(param.learns)
    _settle_complete(steps)


def _from_what_learns(steps: Sequence[Step]) -> None:
    """Mark, in forward order, everything that depends on learnable params."""
    reached: set[int] = set()  # ids of blobs
    for step in steps:
        asked = step.layer.proto.propagate_down
        if asked and len(asked) != len(step.bottoms):
            raise step.layer.error(
                f"propagate_down is given {len(asked)} times for {len(step.bottoms)} bottoms"
            )
        looked_at = step.layer.references
        depends = [
            id(bottom) in reached and place not in looked_at
            for place, bottom in enumerate(step.bottoms)
        ]
        step.wants = [
            wants and place not in looked_at for place, wants in enumerate(asked or depends)
        ]
        learns = any(param.learns for param in step.layer.params)
        step.needs_backward = learns or any(depends)
        if step.needs_backward:
            reached.update(id(top) for top in step.tops)


def _only_towards_losses(steps: Sequence[Step]) -> None:
    """Unmark, in backward order, everything on which no loss depends."""
    under_loss: set[int] = set()
    stopped: set[int] = set()  # blobs whose reader returns no gradient
    for step in reversed(steps):
        contributes = step.has_loss or any(id(top) in under_loss for top in step.tops)
        hears = step.has_loss or not all(id(top) in stopped for top in step.tops)
        if not (contributes and hears):
            step.needs_backward = False
        if not step.needs_backward:
            step.wants = [False] * len(step.bottoms)
        for bottom, wants in zip(step.bottoms, step.wants, strict=True):
            if contributes:
                under_loss.add(id(bottom))
            if not wants:
                stopped.add(id(bottom))


def _refuse_impossible(step: Step) -> None:
    for place, wants in enumerate(step.wants):
        if wants and place in step.layer.no_gradient_to:
            raise step.layer.error(
                f"has no gradient for its bottom {place}, '{step.bottoms[place].name}', which "
                f"depends on something that learns; set propagate_down to false there"
            )


def _settle_complete(steps: Sequence[Step]) -> None:
    """Mark the first layer that uses a param as the last to add to its gradient."""
    seen: set[int] = set()
    for step in steps:
        step.complete = []
        if not step.needs_backward:
            continue
        for param in step.layer.params:
            owner: Param = param.owner
            if owner.learns and id(owner) not in seen:
                seen.add(id(owner))
                step.complete.append(owner)
