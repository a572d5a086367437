"""A round's forward and backward pass of N stacked replicas: the steps of `layers`, without autograd.

Tensor names end in their dimensions: n replicas, b samples of a batch, h and w rows and columns, k channels.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Literal

import torch
from torch import Tensor, nn

from gcpsl.kernels.layers import IMAGES, Convolution, Head, Normalisation, Step
from gcpsl.kernels.plain import running_statistics
from gcpsl.kernels.shapes import Addend, Augmentation, ConvShape, Norm, Operations, Origin

COLUMNS_MIN = 16
FILTERS, UPDATES = range(2)  # what runs beside the backward pass, in lanes of its own


@dataclass(frozen=True)
class Rows:
    """Flat buffers of N replicas, a row each. `compute` is the parameters in the precision of the products."""

    parameters: Tensor
    gradients: Tensor
    norm_state: Tensor
    compute: Tensor


@dataclass
class _Tape:
    """What the backward pass needs of the forward one, by the number of the value."""

    values: dict[int, Tensor]
    stats: dict[int, Tensor]
    means_nbk: Tensor | None = None
    sums: dict[int, Tensor] = field(default_factory=dict)
    kept: list[Tensor] = field(default_factory=list)


class Network:
    """The steps of one model. `offset` tells where in a row a parameter or running value of the model lies."""

    def __init__(self, steps: Sequence[Step], offsets: dict[int, int], operations: Operations, *, tf32: bool) -> None:
        self._steps = steps
        self._offsets = offsets
        self._ops = operations
        stem = steps[0]
        assert isinstance(stem, Convolution)
        self._stem = stem.shape
        self._shapes = {s.target: replace(s.shape, tf32=tf32) for s in steps if isinstance(s, Convolution)}
        self._shapes[stem.target] = replace(_as_product(stem.shape), tf32=tf32)
        self._completes = _completing(steps)

    def images(self, source: Augmentation, samples_nb: Tensor, bits_nb: Tensor, valid_n: Tensor, rows: Rows) -> Tensor:
        """What the first convolution reads of a round's augmented images."""
        shape = self._stem
        columns = _as_product(shape).inputs
        out = rows.compute.new_empty(*samples_nb.shape, shape.out_height, shape.out_width, columns)
        self._ops.patches(source, samples_nb, bits_nb, valid_n, shape, out)
        return out

    def scores(self, images: Tensor, rows: Rows, valid_n: Tensor) -> Tensor:
        """The class scores in eval mode."""
        return self._forward(images, rows, valid_n, training=False)[0]

    def gradients(
        self,
        images: Tensor,
        labels_nb: Tensor,
        valid_n: Tensor,
        rows: Rows,
        smoothing: float,
        scale_n: Tensor,
        at: Mapping[int, Callable[[], None]] = MappingProxyType({}),
    ) -> Tensor:
        """Fill `rows.gradients` with `scale_n` times each replica's batch-mean gradients. Returns the losses.

        `at[i]` is called once the gradients of step i and all after it are there, and may overlap with what is left.
        """
        scores, tape = self._forward(images, rows, valid_n, training=True)
        losses_n, d_scores = self._ops.loss(scores, labels_nb, valid_n, smoothing, scale_n)
        self._backward(d_scores, tape, rows, valid_n, at)
        return losses_n

    def _forward(self, images: Tensor, rows: Rows, valid_n: Tensor, *, training: bool) -> tuple[Tensor, _Tape]:
        tape = _Tape({IMAGES: images}, {})
        sums: dict[int, Tensor] = {}
        scores = images
        grouped = {s.source for s in self._steps if isinstance(s, Normalisation) and _groups(s.module)}
        for step in self._steps:
            x = tape.values[step.source]
            if isinstance(step, Convolution):
                w, shape = self._row(rows.compute, step.module.weight), self._shapes[step.target]
                per_sample = step.target in grouped
                tape.values[step.target], sums[step.target] = self._ops.conv(
                    x, w, shape, valid_n, per_sample=per_sample
                )
            elif isinstance(step, Normalisation):
                norm = self._norm(step, rows)
                if norm.groups or training:
                    made = sums.pop(step.source)
                    stats = self._ops.statistics(made, norm, step.pixels, x.shape[1], valid_n)
                else:
                    stats = running_statistics(norm)
                skip = None if step.skip is None else tape.values[step.skip]
                tape.stats[step.target] = stats
                tape.values[step.target] = self._ops.apply(x, stats, valid_n, skip, relu=step.relu)
            else:
                tape.means_nbk = x.mean((2, 3), dtype=rows.parameters.dtype)
                weight = self._matrix(rows.parameters, step)
                bias = self._row(rows.parameters, step.module.bias)
                scores = torch.baddbmm(bias[:, None], tape.means_nbk, weight.transpose(1, 2))
        return scores, tape

    def _backward(
        self, d_scores: Tensor, tape: _Tape, rows: Rows, valid_n: Tensor, at: Mapping[int, Callable[[], None]]
    ) -> None:
        """The gradients of values are one chain; those of filters run beside it, and read what `tape.kept` keeps."""
        pending: dict[int, Addend] = {}
        device = d_scores.device
        for i, step in reversed(list(enumerate(self._steps))):
            if isinstance(step, Head):
                pending[step.source] = Addend("dense", self._head_gradient(step, d_scores, tape, rows))
            elif isinstance(step, Normalisation):
                self._norm_gradient(step, pending, tape, rows, valid_n)
            else:
                self._conv_gradient(step, pending, tape, rows, valid_n)
            if i in at:
                with self._ops.beside(UPDATES, device):
                    at[i]()
        self._ops.join(device)
        tape.kept.clear()

    def _head_gradient(self, step: Head, d_scores: Tensor, tape: _Tape, rows: Rows) -> Tensor:
        x = tape.values[step.source]
        assert tape.means_nbk is not None
        self._matrix(rows.gradients, step).copy_(d_scores.transpose(1, 2) @ tape.means_nbk)
        self._row(rows.gradients, step.module.bias).copy_(d_scores.sum(1))
        d_means = d_scores @ self._matrix(rows.parameters, step) / (x.shape[2] * x.shape[3])
        return d_means.to(x.dtype)[:, :, None, None].expand_as(x).contiguous()

    def _norm_gradient(
        self, step: Normalisation, pending: dict[int, Addend], tape: _Tape, rows: Rows, valid_n: Tensor
    ) -> None:
        own, origin = pending.pop(step.target), self._origin(step, tape)
        sums = tape.sums.pop(step.target, None)
        if sums is None:
            sums = self._ops.gradient_sums(own.values, origin)
        dx = self._ops.norm_gradient(own.values, sums, origin, self._norm(step, rows), valid_n)
        del tape.values[step.target], tape.stats[step.target]
        if step.skip is not None:
            pending[step.skip] = own
        pending[step.source] = Addend("dense", dx)

    @staticmethod
    def _origin(step: Normalisation, tape: _Tape) -> Origin:
        mask: Tensor | Literal["self", "none"] = "none"
        if step.relu:
            mask = "self" if step.skip is None else tape.values[step.target]
        return Origin(tape.values[step.source], tape.stats[step.target], mask, _groups(step.module) > 0)

    def _conv_gradient(
        self, step: Convolution, pending: dict[int, Addend], tape: _Tape, rows: Rows, valid_n: Tensor
    ) -> None:
        g = pending.pop(step.target).values
        del tape.values[step.target]
        x, shape = tape.values[step.source], self._shapes[step.target]
        with self._ops.beside(FILTERS, x.device):
            self._ops.weight_gradient(x, g, shape, valid_n, self._row(rows.gradients, step.module.weight))
        tape.kept += [x, g]
        if step.source == IMAGES:
            return
        w, add = self._row(rows.compute, step.module.weight), pending.get(step.source)
        if (shape.side, shape.stride) == (1, 2):
            half = replace(shape, height=shape.out_height, width=shape.out_width, stride=1)
            pending[step.source] = Addend("even", self._ops.input_gradient(g, w, half, valid_n, None, None)[0])
            return
        made_by = self._completes.get(step.target)
        origin = None if made_by is None else self._origin(made_by, tape)
        dx, sums = self._ops.input_gradient(g, w, shape, valid_n, add, origin)
        pending[step.source] = Addend("dense", dx)
        if made_by is not None and sums is not None:
            tape.sums[made_by.target] = sums

    def _row(self, buffer: Tensor, like: Tensor | None) -> Tensor:
        """A parameter's place in every replica's row, [n, size]."""
        assert like is not None
        start = self._offsets[id(like)]
        return buffer[:, start : start + like.numel()]

    def _matrix(self, buffer: Tensor, step: Head) -> Tensor:
        weight = step.module.weight
        return self._row(buffer, weight).view(-1, *weight.shape)

    def _norm(self, step: Normalisation, rows: Rows) -> Norm:
        module = step.module
        return Norm(
            weight_nk=self._row(rows.parameters, module.weight),
            bias_nk=self._row(rows.parameters, module.bias),
            d_weight_nk=self._row(rows.gradients, module.weight),
            d_bias_nk=self._row(rows.gradients, module.bias),
            groups=_groups(module),
            eps=module.eps,
            momentum=0.0 if isinstance(module, nn.GroupNorm) else float(module.momentum or 0.0),
            mean_nk=None if isinstance(module, nn.GroupNorm) else self._row(rows.norm_state, module.running_mean),
            var_nk=None if isinstance(module, nn.GroupNorm) else self._row(rows.norm_state, module.running_var),
        )


def _completing(steps: Sequence[Step]) -> dict[int, Normalisation]:
    """The norms whose output a convolution reads first, by that convolution: going backward, its gradient is the last
    that the output gets."""
    norms = {step.target: step for step in steps if isinstance(step, Normalisation)}
    first: dict[int, Step] = {}
    for step in steps:
        for number in (step.source, getattr(step, "skip", None)):
            if number is not None:
                first.setdefault(number, step)
    return {
        step.target: norms[number]
        for number, step in first.items()
        if number in norms and isinstance(step, Convolution)
    }


def _groups(module: nn.BatchNorm2d | nn.GroupNorm) -> int:
    return module.num_groups if isinstance(module, nn.GroupNorm) else 0


def _as_product(stem: ConvShape) -> ConvShape:
    """The first convolution as a matrix product of the patches it sees."""
    used = stem.side**2 * stem.inputs
    columns = max(COLUMNS_MIN, 1 << (used - 1).bit_length())
    return ConvShape(stem.out_height, stem.out_width, columns, stem.outputs, unused=columns - used)
