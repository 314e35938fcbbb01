"""The fragments of a model, which are exchanged in turn."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from sirtaki.core.outer import cut_evenly


class Fragment:
    """Some parameters of a model, as they were after their last outer step.

    Attributes:
        names: Of the parameters.
        params: The parameters, which local steps change.
        saved: Their values after the last outer step.
    """

    def __init__(self, named: Sequence[tuple[str, torch.Tensor]]) -> None:
        self.names = [name for name, _ in named]
        self.params = [param for _, param in named]
        self.saved = [param.detach().clone() for param in self.params]

    def save(self) -> None:
        """Keep the parameters as they are now."""
        for saved, param in zip(self.saved, self.params, strict=True):
            saved.copy_(param.detach())

    def go_back(self) -> None:
        """Give the parameters their saved values."""
        with torch.no_grad():
            for saved, param in zip(self.saved, self.params, strict=True):
                param.copy_(saved)

    def packed(self, *, differences: bool) -> torch.Tensor:
        """Return all parameters in a row, or how far the saved ones are from them."""
        dtype = torch.float32
        for param in self.params:
            dtype = torch.promote_types(dtype, param.dtype)
        pairs = zip(self.saved, self.params, strict=True)
        with torch.no_grad():
            rows = [
                (saved.to(dtype) - param.to(dtype) if differences else param.to(dtype)).flatten()
                for saved, param in pairs
            ]
        return torch.cat(rows)

    def unpacked(self, row: torch.Tensor) -> list[torch.Tensor]:
        """Return the parts of a row, with each parameter's shape and type."""
        parts = row.split([param.numel() for param in self.params])
        pairs = zip(parts, self.params, strict=True)
        return [part.view(param.shape).to(param.dtype) for part, param in pairs]


def cut(
    name: str,
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    fragments: int | Sequence[torch.nn.Module],
) -> list[Fragment]:
    """Cut a model into fragments.

    Args:
        name: Of the optimizer, for errors.
        model: Whose parameters are exchanged.
        optimizer: The local one, which changes them.
        fragments: How many, of about equally many bytes each; or the modules.

    Raises:
        ValueError: The optimizer has other parameters than the model, or the fragments do not
            cover all of them, overlap, or have none.
    """
    own = {p for group in optimizer.param_groups for p in group["params"]}
    named = [(n, p) for n, p in model.named_parameters() if p in own]
    if len(named) < len(own):
        raise ValueError(
            f"{name}: the optimizer has {len(own) - len(named)} parameters that are not the "
            "model's: pass the model that it trains"
        )
    if isinstance(fragments, int):
        if not 1 <= fragments <= len(named):
            raise ValueError(
                f"{name}: fragments={fragments} must be at least 1 and at most the number of "
                f"trained parameters, {len(named)}"
            )
        sizes = [param.nbytes for _, param in named]
        return [Fragment([named[at] for at in part]) for part in cut_evenly(sizes, fragments)]
    return [Fragment(part) for part in _by_modules(name, named, fragments)]


def _by_modules(
    name: str,
    named: Sequence[tuple[str, torch.Tensor]],
    modules: Sequence[torch.nn.Module],
) -> list[list[tuple[str, torch.Tensor]]]:
    names = {param: label for label, param in named}
    parts: list[list[tuple[str, torch.Tensor]]] = []
    where: dict[torch.Tensor, int] = {}
    for number, module in enumerate(modules):
        part: list[tuple[str, torch.Tensor]] = [
            (names[param], param) for param in module.parameters() if param in names
        ]
        if not part:
            raise ValueError(f"{name}: fragment {number} has no trained parameter of the model")
        for label, param in part:
            if param in where:
                raise ValueError(
                    f"{name}: {label} is in fragments {where[param]} and {number}; each parameter "
                    "belongs to one"
                )
            where[param] = number
        parts.append(part)
    if left := [label for label, param in named if param not in where]:
        raise ValueError(
            f"{name}: no fragment has {left[0]} and {len(left) - 1} more parameters: the modules "
            "must cover the model"
        )
    return parts
