"""Every operation of a round in ordinary PyTorch: slow and obvious. See `shapes.Operations` for what each promises."""

from __future__ import annotations

from contextlib import nullcontext

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.grad import conv2d_input, conv2d_weight

from gcpsl.kernels.shapes import Addend, Augmentation, ConvShape, Norm, Origin, Plan, Update

MASK_31 = (1 << 31) - 1
BETA1, BETA2, EPSILON = 0.9, 0.999, 1e-8

compiled_ahead = nullcontext


def beside(lane: int, device: torch.device) -> nullcontext[None]:
    return nullcontext()


def join(device: torch.device) -> None:
    """Nothing ran beside."""


def take(plan: Plan, labels: Tensor, batch: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    turn = plan.turn_n.clamp(max=plan.sizes_nt.shape[1] - 1)[:, None]
    valid_n = torch.where(plan.turn_n < plan.until_n, plan.sizes_nt.gather(1, turn)[:, 0], 0)
    entries = plan.starts_nt.gather(1, turn) + torch.arange(batch, device=turn.device)
    entries = entries.clamp(max=len(plan.samples) - 1)
    samples_nb = plan.samples[entries]
    return samples_nb, plan.bits[entries], labels[samples_nb], valid_n


def advance(plan: Plan, losses_n: Tensor, valid_n: Tensor) -> None:
    turn = plan.turn_n.clamp(max=plan.sizes_nt.shape[1] - 1)[:, None]
    kept = plan.losses_nt.gather(1, turn)
    plan.losses_nt.scatter_(1, turn, torch.where(valid_n[:, None] > 0, losses_n[:, None], kept))
    plan.turn_n.add_((valid_n > 0).to(plan.turn_n.dtype))


def patches(
    source: Augmentation, samples_nb: Tensor, bits_nb: Tensor, valid_n: Tensor, stem: ConvShape, out: Tensor
) -> None:
    n, b = samples_nb.shape
    images = source.images[samples_nb.flatten()].permute(0, 3, 1, 2)
    bits = bits_nb.flatten()
    p = source.crop_padding
    if p:
        _, _, height, width = images.shape
        down, across = (bits & MASK_31) % (2 * p + 1), ((bits >> 31) & MASK_31) % (2 * p + 1)
        crops = F.pad(images, (p, p, p, p)).unfold(2, height, 1).unfold(3, width, 1)
        images = crops[torch.arange(n * b, device=bits.device), :, down, across]
    if source.flip:
        images = torch.where((bits < 0)[:, None, None, None], images.flip(3), images)
    values = images * source.factor[:, None, None] + source.offset[:, None, None]
    real = torch.arange(b, device=valid_n.device) < valid_n[:, None]
    values = torch.where(real.flatten()[:, None, None, None], values, 0.0)
    columns = F.unfold(values, stem.side, padding=stem.side // 2, stride=stem.stride)  # (channel, tap) x pixel
    channels = values.shape[1]
    columns = columns.view(n * b, channels, stem.side**2, -1).permute(0, 3, 2, 1).flatten(2)
    out.zero_()
    out.view(n * b, stem.out_pixels, -1)[:, :, : columns.shape[2]] = columns.to(out.dtype)


def _filters(w: Tensor, shape: ConvShape) -> Tensor:
    """One replica's filters [k, c, r, s] in float32, or as they are in float64."""
    filters = w.view(shape.outputs, shape.side, shape.side, shape.used).permute(0, 3, 1, 2)
    return _wide(F.pad(filters, (0, 0, 0, 0, 0, shape.unused)))


def _wide(x: Tensor) -> Tensor:
    return x if x.dtype == torch.float64 else x.float()


def conv(x: Tensor, w: Tensor, shape: ConvShape, valid_n: Tensor, *, per_sample: bool) -> tuple[Tensor, Tensor]:
    outs = [
        F.conv2d(_wide(one.permute(0, 3, 1, 2)), _filters(row, shape), stride=shape.stride, padding=shape.side // 2)
        for one, row in zip(x, w, strict=True)
    ]
    y = torch.stack(outs).permute(0, 1, 3, 4, 2).contiguous()
    sums = torch.stack([y.sum((2, 3)), y.square().sum((2, 3))], dim=2)
    return y.to(x.dtype), sums


def input_gradient(
    g: Tensor, w: Tensor, shape: ConvShape, valid_n: Tensor, add: Addend | None, origin: Origin | None
) -> tuple[Tensor, Tensor | None]:
    size = (g.shape[1], shape.inputs, shape.height, shape.width)
    grads = [
        conv2d_input(
            size, _filters(row, shape), _wide(one.permute(0, 3, 1, 2)), stride=shape.stride, padding=shape.side // 2
        )
        for one, row in zip(g, w, strict=True)
    ]
    dx = torch.stack(grads).permute(0, 1, 3, 4, 2).contiguous()
    if add is not None:
        dx += dense(add, dx.shape)
    sums = None if origin is None else gradient_sums(dx, origin)
    return dx.to(g.dtype), sums


def dense(add: Addend, shape: torch.Size) -> Tensor:
    """The addend as a gradient of every pixel."""
    if add.kind == "even":
        every = add.values.new_zeros(shape)
        every[:, :, ::2, ::2] = add.values
        return every
    return add.values


def weight_gradient(x: Tensor, g: Tensor, shape: ConvShape, valid_n: Tensor, out: Tensor) -> None:
    size = (shape.outputs, shape.inputs, shape.side, shape.side)
    for one, grad, row in zip(x, g, out, strict=True):
        images, gradients = _wide(one.permute(0, 3, 1, 2)), _wide(grad.permute(0, 3, 1, 2))
        dw = conv2d_weight(images, size, gradients, stride=shape.stride, padding=shape.side // 2)
        row.copy_(dw[:, : shape.used].permute(0, 2, 3, 1).flatten())


def statistics(sums: Tensor, norm: Norm, pixels: int, batch: int, valid_n: Tensor) -> Tensor:
    n, _, _, k = sums.shape
    if norm.groups:
        per_sample = sums.view(n, batch, -1, 2, norm.groups, k // norm.groups).sum((2, 5))
        mean, square = (per_sample / (pixels * k // norm.groups)).repeat_interleave(k // norm.groups, 3).unbind(2)
        var = (square - mean.square()).clamp(min=0)
    else:
        count = (valid_n * pixels).clamp(min=1)[:, None, None]
        mean, square = (sums.sum(1, keepdim=True) / count[..., None]).unbind(2)
        var = (square - mean.square()).clamp(min=0)
        _move_running(norm, mean[:, 0], (var * count / (count - 1).clamp(min=1))[:, 0], valid_n)
    return _statistics(norm, mean, var)


def _statistics(norm: Norm, mean: Tensor, var: Tensor) -> Tensor:
    rstd = (var + norm.eps).rsqrt()
    scale = norm.weight_nk[:, None] * rstd
    return torch.stack([scale, norm.bias_nk[:, None] - mean * scale, mean, rstd])


def running_statistics(norm: Norm) -> Tensor:
    """A BatchNorm's as it evaluates, [4, n, 1, k]."""
    assert norm.mean_nk is not None and norm.var_nk is not None
    return _statistics(norm, norm.mean_nk[:, None], norm.var_nk[:, None])


def _move_running(norm: Norm, mean_nk: Tensor, var_nk: Tensor, valid_n: Tensor) -> None:
    for running, value in ((norm.mean_nk, mean_nk), (norm.var_nk, var_nk)):
        assert running is not None
        moved = torch.lerp(running, value.to(running.dtype), norm.momentum)
        running.copy_(torch.where(valid_n[:, None] > 0, moved, running))


def _real(x: Tensor, valid_n: Tensor) -> Tensor:
    return (torch.arange(x.shape[1], device=x.device) < valid_n[:, None])[:, :, None, None, None]


def apply(x: Tensor, stats: Tensor, valid_n: Tensor, skip: Tensor | None, *, relu: bool) -> Tensor:
    y = _wide(x) * stats[0][:, :, None, None] + stats[1][:, :, None, None]
    if skip is not None:
        y = y + skip
    if relu:
        y = y.relu()
    return torch.where(_real(x, valid_n), y, 0.0).to(x.dtype)


def gradient_sums(g: Tensor, origin: Origin) -> Tensor:
    scale, shift, mean, rstd = origin.stats[:, :, :, None, None]
    value = _wide(origin.x)
    if isinstance(origin.mask, Tensor):
        g.mul_(origin.mask > 0)
    elif origin.mask == "self":
        g.mul_(value * scale + shift > 0)
    normal = (value - mean) * rstd
    return torch.stack([_wide(g).sum((2, 3)), (_wide(g) * normal).sum((2, 3))], dim=2)


def norm_gradient(g: Tensor, sums: Tensor, origin: Origin, norm: Norm, valid_n: Tensor) -> Tensor:
    n, b, h, w, k = g.shape
    _, _, mean, rstd = origin.stats[:, :, :, None, None]
    by_sample = sums.view(n, b, -1, 2, k).sum(2)
    d_bias_nk, d_weight_nk = by_sample.sum(1).unbind(1)
    norm.d_bias_nk.copy_(d_bias_nk)
    norm.d_weight_nk.copy_(d_weight_nk)
    if norm.groups:
        weighted = (by_sample * norm.weight_nk[:, None, None]).view(n, b, 2, norm.groups, -1)
        averages = weighted.sum(4) / (h * w * k // norm.groups)
        average, along = averages.repeat_interleave(k // norm.groups, 3)[:, :, :, None, None].unbind(2)
    else:
        count = (valid_n * h * w).clamp(min=1)[:, None]
        average, along = ((norm.weight_nk * d / count)[:, None, None, None] for d in (d_bias_nk, d_weight_nk))
    normal = (_wide(origin.x) - mean) * rstd
    dx = rstd * (_wide(g) * norm.weight_nk[:, None, None, None] - average - normal * along)
    return torch.where(_real(g, valid_n), dx, 0.0).to(g.dtype)


def loss(
    logits: Tensor, labels_nb: Tensor, valid_n: Tensor, smoothing: float, scale_n: Tensor
) -> tuple[Tensor, Tensor]:
    classes = logits.shape[2]
    log_p = logits.log_softmax(2)
    target = F.one_hot(labels_nb, classes).to(log_p.dtype) * (1 - smoothing) + smoothing / classes
    real = (torch.arange(logits.shape[1], device=logits.device) < valid_n[:, None])[:, :, None]
    count = valid_n.clamp(min=1)
    losses_n = torch.where(real, -target * log_p, 0.0).sum((1, 2)) / count
    d_logits = torch.where(real, (log_p.exp() - target) / count[:, None, None], 0.0)
    return losses_n, d_logits * scale_n[:, None, None]


def sgd(update: Update, momenta: Tensor | None, *, momentum: float, nesterov: bool, weight_decay: float) -> None:
    g = update.gradients / update.scale_n[:, None] + weight_decay * update.parameters
    if momenta is not None:
        v = momentum * momenta + g
        _replace(momenta, v, update)
        g = g + momentum * v if nesterov else v
    _step(update, update.parameters - update.lr * g)


def adamw(update: Update, mean: Tensor, square: Tensor, steps_n: Tensor, *, weight_decay: float) -> None:
    g = update.gradients / update.scale_n[:, None]
    steps = steps_n + 1
    new_mean = torch.lerp(mean, g, 1 - BETA1)
    new_square = BETA2 * square + (1 - BETA2) * g * g
    size = update.lr / (1 - BETA1**steps)[:, None]
    root = new_square.sqrt() / (1 - BETA2**steps).sqrt()[:, None] + EPSILON
    parameters = update.parameters * (1 - update.lr * weight_decay) - size * new_mean / root
    _replace(mean, new_mean, update)
    _replace(square, new_square, update)
    steps_n.copy_(torch.where(update.active_n > 0, steps, steps_n))
    _step(update, parameters)


def _step(update: Update, parameters: Tensor) -> None:
    _replace(update.parameters, parameters, update)
    if update.compute is not None:
        update.compute.copy_(update.parameters)


def _replace(rows: Tensor, new: Tensor, update: Update) -> None:
    rows.copy_(torch.where(update.active_n[:, None] > 0, new, rows))
