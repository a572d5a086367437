"""A segment whose parameters, gradients and normalisation state each live in one contiguous buffer.

The module's own tensors become views into the buffers, so fusion is one weighted sum, a checkpoint is a few tensors and
an all-reduce is one call. Knows nothing of clusters or of which side of the cut it stands on.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn

from gcpsl.config import OptimizerConfig


class FlatSegment:
    """One segment of a split model with its optimizer. `norm_state` and `counters` are BatchNorm's running values."""

    def __init__(self, module: nn.Module, optimizer: OptimizerConfig, *, channels_last: bool) -> None:
        self.module = copy.deepcopy(module)
        parameters = [p for p in self.module.parameters() if p.requires_grad]
        buffers = list(self.module.named_buffers())
        self.parameters = nn.Parameter(_gather(parameters, channels_last))
        self.gradients = torch.zeros_like(self.parameters)
        self.parameters.grad = self.gradients
        values, gradients = self.parameters.detach(), self.gradients
        for parameter, value, grad in zip(
            parameters,
            _views(values, parameters, channels_last),
            _views(gradients, parameters, channels_last),
            strict=True,
        ):
            parameter.data = value
            parameter.grad = grad
        self.norm_state = self._own_buffers(buffers, torch.is_floating_point)
        self.counters = self._own_buffers(buffers, lambda tensor: not tensor.is_floating_point())
        self.optimizer = make_optimizer(self.parameters, optimizer)

    def _own_buffers(self, buffers: Iterable[tuple[str, Tensor]], kind: Callable[[Tensor], bool]) -> Tensor:
        """Move the module's buffers of one kind into one flat tensor."""
        chosen = [(name, tensor) for name, tensor in buffers if kind(tensor)]
        tensors = [tensor for _, tensor in chosen]
        flat = _gather(tensors, channels_last=False)
        for (name, _), view in zip(chosen, _views(flat, tensors, channels_last=False), strict=True):
            owner, _, leaf = name.rpartition(".")
            self.module.get_submodule(owner)._buffers[leaf] = view
        return flat

    def state(self) -> tuple[Tensor, ...]:
        """What fusion combines: parameters and normalisation state."""
        return self.parameters.detach(), self.norm_state, self.counters

    def load(self, state: Iterable[Tensor]) -> None:
        for mine, theirs in zip(self.state(), state, strict=True):
            mine.copy_(theirs)

    def tensors(self) -> dict[str, Tensor]:
        """Everything a checkpoint needs, the optimizer's state included."""
        parameters, norm_state, counters = self.state()
        named = {"parameters": parameters, "norm_state": norm_state, "counters": counters}
        local = self.optimizer.state.get(self.parameters, {})
        return named | {f"optimizer.{name}": value for name, value in local.items() if isinstance(value, Tensor)}

    def restore(self, tensors: dict[str, Tensor]) -> None:
        self.load(tensors[name] for name in ("parameters", "norm_state", "counters"))
        prefix = "optimizer."
        # cloned, because the optimizer would otherwise go on in the caller's own tensors
        local = {name.removeprefix(prefix): t.clone() for name, t in tensors.items() if name.startswith(prefix)}
        groups = self.optimizer.state_dict()["param_groups"]
        self.optimizer.load_state_dict({"state": {0: local} if local else {}, "param_groups": groups})

    def update(self, lr: float) -> None:
        """Step on the gradients gathered since the last update, and clear them."""
        self.optimizer.param_groups[0]["lr"] = lr
        self.optimizer.step()
        self.gradients.zero_()


def make_optimizer(parameters: nn.Parameter, config: OptimizerConfig) -> torch.optim.Optimizer:
    if config.kind == "adamw":
        return torch.optim.AdamW([parameters], lr=config.lr, weight_decay=config.weight_decay, fused=True)
    return torch.optim.SGD(
        [parameters],
        lr=config.lr,
        momentum=config.momentum,
        nesterov=config.nesterov,
        weight_decay=config.weight_decay,
        fused=True,
    )


def _gather(tensors: list[nn.Parameter] | list[Tensor], channels_last: bool) -> Tensor:
    if not tensors:
        return torch.empty(0)
    return torch.cat([_stored(t.detach(), channels_last).reshape(-1) for t in tensors])


def _stored(tensor: Tensor, channels_last: bool) -> Tensor:
    """The tensor with its dimensions in storage order: filters keep their channels last where asked."""
    return tensor.permute(0, 2, 3, 1) if channels_last and tensor.dim() == 4 else tensor


def _views(flat: Tensor, like: list[nn.Parameter] | list[Tensor], channels_last: bool) -> list[Tensor]:
    views = []
    for piece, tensor in zip(flat.split([t.numel() for t in like]), like, strict=True):
        view = piece.view(_stored(tensor.detach(), channels_last).shape)
        views.append(view.permute(0, 3, 1, 2) if channels_last and tensor.dim() == 4 else view)
    return views
