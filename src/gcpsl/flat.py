"""A segment whose parameters, gradients and normalisation state each live in one contiguous buffer.

The module's own tensors become views into the buffers, so fusion is one weighted sum, a checkpoint is a few tensors and
an all-reduce is one call. Knows nothing of clusters or of which side of the cut it stands on.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn

from gcpsl.config import OptimizerConfig

ALIGNMENT = 64  # elements


class FlatSegment:
    """One segment of a split model with its optimizer. `norm_state` and `counters` are BatchNorm's running values."""

    def __init__(
        self,
        module: nn.Module,
        optimizer: OptimizerConfig,
        *,
        channels_last: bool,
        device: torch.device | None = None,
    ) -> None:
        self.module = copy.deepcopy(module).to(device)
        self._channels_last = channels_last
        self._own = [p for p in self.module.parameters() if p.requires_grad]
        buffers = list(self.module.named_buffers())
        # others (masks, tables of another precision) are no state of training: every replica keeps its own
        state = self._own[0].dtype if self._own else torch.float32
        self._state_names = [name for name, tensor in buffers if tensor.dtype == state]
        self._counter_names = [name for name, tensor in buffers if tensor.dtype == torch.int64]
        self.parameters = nn.Parameter(_gather(self._own, channels_last))
        self._bind(
            torch.zeros_like(self.parameters), *map(self._flat_buffers, (self._state_names, self._counter_names))
        )
        self.optimizer = make_optimizer(self.parameters, optimizer)

    def move(self, parameters: Tensor, gradients: Tensor, norm_state: Tensor, counters: Tensor) -> None:
        """Take everything but the optimizer's state over into these flat tensors, and live in them."""
        for target, mine in zip((parameters, norm_state, counters), self.state(), strict=True):
            target.copy_(mine)
        gradients.copy_(self.gradients)
        self.parameters.grad = None
        self.parameters.data = parameters
        self._bind(gradients, norm_state, counters)

    def _bind(self, gradients: Tensor, norm_state: Tensor, counters: Tensor) -> None:
        """Make the module's own tensors views into the flat ones."""
        self.parameters.grad = self.gradients = gradients
        self.norm_state, self.counters = norm_state, counters
        values = _views(self.parameters.detach(), self._own, self._channels_last)
        grads = _views(gradients, self._own, self._channels_last)
        for parameter, value, grad in zip(self._own, values, grads, strict=True):
            parameter.grad = None
            parameter.data = value
            parameter.grad = grad
        for flat, names in ((norm_state, self._state_names), (counters, self._counter_names)):
            views = _views(flat, [self.module.get_buffer(name) for name in names], channels_last=False)
            for name, view in zip(names, views, strict=True):
                owner, _, leaf = name.rpartition(".")
                self.module.get_submodule(owner)._buffers[leaf] = view

    def _flat_buffers(self, names: list[str]) -> Tensor:
        return _gather([self.module.get_buffer(name) for name in names], channels_last=False)

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


class Stack:
    """The flat buffers of N replicas of the same segments, a row each: the replicas' segments become views into them.

    `optimizer_state` has a row per replica too, but for AdamW's number of steps, which is one per replica.
    """

    def __init__(self, replicas: Sequence[Sequence[FlatSegment]], optimizer: OptimizerConfig) -> None:
        self._replicas = replicas
        first = replicas[0]
        self._starts = list(itertools.accumulate((_padded(len(s.parameters)) for s in first), initial=0))
        like, n = first[0].parameters.detach(), len(replicas)
        self.parameters = like.new_zeros(n, self._starts[-1])
        self.gradients = torch.zeros_like(self.parameters)
        self.norm_state = like.new_zeros(n, sum(len(s.norm_state) for s in first))
        self.counters = like.new_zeros(n, sum(len(s.counters) for s in first), dtype=torch.int64)
        for row, segments in enumerate(replicas):
            states = self.norm_state[row].split([len(s.norm_state) for s in first])
            counters = self.counters[row].split([len(s.counters) for s in first])
            for i, segment in enumerate(segments):
                segment.move(
                    self._part(self.parameters, row, i), self._part(self.gradients, row, i), states[i], counters[i]
                )
        names = (
            ("exp_avg", "exp_avg_sq") if optimizer.kind == "adamw" else ("momentum_buffer",) * (optimizer.momentum > 0)
        )
        self.optimizer_state = {name: torch.zeros_like(self.parameters) for name in names}
        if optimizer.kind == "adamw":
            self.optimizer_state["step"] = like.new_zeros(n)
        self.adopt_optimizers()

    def adopt_optimizers(self) -> None:
        """Take over what the segments' optimizers hold, whose state lives here from then on."""
        for row, segments in enumerate(self._replicas):
            for i, segment in enumerate(segments):
                held = segment.optimizer.state[segment.parameters]
                for name, stacked in self.optimizer_state.items():
                    mine = stacked[row] if name == "step" else self._part(stacked, row, i)
                    mine.copy_(held[name]) if name in held else mine.zero_()
                    held[name] = mine

    @property
    def starts(self) -> list[int]:
        """Where in a row each segment begins, and where the last one ends."""
        return self._starts

    def offsets(self) -> dict[int, int]:
        """Where in a row each parameter and floating-point buffer of the segments' modules lies, by its identity."""
        module_tensors = [
            t for s in self._replicas[0] for t in itertools.chain(s.module.parameters(), s.module.buffers())
        ]
        return {id(t): int(t.storage_offset()) for t in module_tensors}

    def _part(self, rows: Tensor, row: int, segment: int) -> Tensor:
        start = self._starts[segment]
        return rows[row, start : start + len(self._replicas[0][segment].parameters)]


def _padded(size: int) -> int:
    """So that the next segment begins at an address that any kernel may load 16 bytes from."""
    return -(-size // ALIGNMENT) * ALIGNMENT


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
