"""The operations as launches of the Triton kernels, each over all replicas at once; see `shapes.Operations`.

Tile sizes were chosen on an H200 for batches of 64; they decide how fast a launch is, and never what it computes.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, Literal

import torch
import triton
from torch import Tensor

from gcpsl.kernels import triton_conv, triton_norm, triton_step
from gcpsl.kernels.plain import BETA1, BETA2, EPSILON
from gcpsl.kernels.shapes import Addend, Augmentation, ConvShape, Norm, Plan, Update

PROGRAMS = 128  # about one for each of a large GPU's multiprocessors
SPLIT_PROGRAMS = 264
NORM_TILE = 4096
STEP_BLOCK = 1024
SUM_BLOCK = 256

_compiling = False


@contextmanager
def compiled_ahead() -> Iterator[None]:
    """Launches inside only have their kernels compiled, all of them side by side; nothing is computed."""
    from triton.runtime._async_compile import AsyncCompileMode

    global _compiling  # noqa: PLW0603 - launches are far below whoever knows that this is a rehearsal
    with ThreadPoolExecutor(os.cpu_count()) as threads, AsyncCompileMode(threads):
        _compiling = True
        try:
            yield
        finally:
            _compiling = False


def _launch(kernel: Any, grid: tuple[int, ...], *args: Any, **constants: Any) -> None:
    if _compiling:
        kernel.warmup(*args, grid=grid, **constants)
    else:
        kernel[grid](*args, **constants)


def _tile(most: int, size: int) -> int:
    """The largest power of two that divides `size`, at most `most`."""
    return min(most, size & -size)


def take(plan: Plan, labels: Tensor, batch: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    n, rounds = plan.sizes_nt.shape
    samples_nb, bits_nb, labels_nb = (plan.samples.new_empty(n, batch) for _ in range(3))
    valid_n = plan.turn_n.new_empty(n)
    _launch(
        triton_step.take, (n,), plan.samples, plan.bits, labels, plan.starts_nt, plan.sizes_nt, plan.turn_n,
        plan.until_n, samples_nb, bits_nb, labels_nb, valid_n, rounds, len(plan.samples), batch, BM=64,
    )  # fmt: skip
    return samples_nb, bits_nb, labels_nb, valid_n


def advance(plan: Plan, losses_n: Tensor, valid_n: Tensor) -> None:
    n, rounds = plan.sizes_nt.shape
    _launch(triton_step.advance, (n,), losses_n, valid_n, plan.turn_n, plan.losses_nt, rounds)


def patches(
    source: Augmentation, samples_nb: Tensor, bits_nb: Tensor, valid_n: Tensor, stem: ConvShape, out: Tensor
) -> None:
    n, batch = samples_nb.shape
    _, height, width, channels = source.images.shape
    tile = 64
    tiles = triton.cdiv(stem.out_pixels, tile)
    _launch(
        triton_step.patches, (batch * tiles, n), source.images, source.factor, source.offset, samples_nb, bits_nb,
        valid_n, out, tiles, H=height, W=width, CH=channels, OH=stem.out_height, OW=stem.out_width, SIDE=stem.side,
        STRIDE=stem.stride, PADDING=source.crop_padding, FLIP=source.flip, WIDTH=out.shape[-1], BM=tile,
    )  # fmt: skip


def _precision(x: Tensor, shape: ConvShape) -> str:
    return "tf32" if shape.tf32 or x.dtype != torch.float32 else "ieee"


def _product_tiles(n: int, pixels: int, outputs: int, x: Tensor, most: int) -> tuple[int, int, int, int]:
    """BM, BN, warps and stages of a product of (pixels, ...) with (..., outputs) for each replica."""
    if x.dtype == torch.float32:
        return min(64, most), min(outputs, 64), 4, 2
    if outputs <= 64:
        choices = [(128, outputs, 4, 3), (64, outputs, 4, 4)]
    elif outputs == 128:
        choices = [(128, 128, 8, 3), (64, 128, 4, 4), (64, 64, 4, 4)]
    else:
        choices = [(128, 256, 8, 3), (64, 256, 8, 3), (64, 128, 4, 4), (64, 64, 4, 4)]
    full = (c for c in choices if n * triton.cdiv(pixels, c[0]) * (outputs // c[1]) >= PROGRAMS)
    rows, columns, warps, stages = next(full, choices[-1])
    return min(rows, most), columns, warps, stages


def conv(x: Tensor, w: Tensor, shape: ConvShape, valid_n: Tensor, *, per_sample: bool) -> tuple[Tensor, Tensor]:
    n, batch = x.shape[:2]
    pixels = batch * shape.out_pixels
    most = _tile(128, shape.out_pixels) if per_sample else 128
    rows, columns, warps, stages = _product_tiles(n, pixels, shape.outputs, x, most)
    tiles = triton.cdiv(pixels, rows)
    y = x.new_empty(n, batch, shape.out_height, shape.out_width, shape.outputs)
    sums = x.new_empty(n, tiles, 2, shape.outputs, dtype=torch.float32)
    _launch(
        triton_conv.forward, (tiles * (shape.outputs // columns), n), x, w, y, sums, valid_n, batch, w.stride(0),
        H=shape.height, W=shape.width, C=shape.inputs, C_USED=shape.used, OH=shape.out_height, OW=shape.out_width,
        K=shape.outputs, SIDE=shape.side, STRIDE=shape.stride, SUMS=True, PRECISION=_precision(x, shape), BM=rows,
        BN=columns, BC=min(64, shape.inputs), num_warps=warps, num_stages=stages,
    )  # fmt: skip
    return y, sums


def input_gradient(g: Tensor, w: Tensor, shape: ConvShape, valid_n: Tensor, add: Addend | None) -> Tensor:
    n, batch = g.shape[:2]
    parities = shape.stride**2
    pixels = batch * shape.height * shape.width // parities
    rows, columns, warps, stages = _product_tiles(n * parities, pixels, shape.inputs, g, 128)
    dx = g.new_empty(n, batch, shape.height, shape.width, shape.inputs)
    values = g if add is None else add.values
    _launch(
        triton_conv.input_gradient, (triton.cdiv(pixels, rows) * (shape.inputs // columns), n, parities), g, w, dx,
        values, valid_n, batch, w.stride(0), H=shape.height, W=shape.width, C=shape.inputs, OH=shape.out_height,
        OW=shape.out_width, K=shape.outputs, SIDE=shape.side, STRIDE=shape.stride, ADD=add.kind if add else "none",
        PRECISION=_precision(g, shape), BM=rows, BN=columns, BK=min(64, shape.outputs), num_warps=warps,
        num_stages=stages,
    )  # fmt: skip
    return dx


def weight_gradient(x: Tensor, g: Tensor, shape: ConvShape, valid_n: Tensor, out: Tensor) -> None:
    n, batch = x.shape[:2]
    pixels = batch * shape.out_pixels
    step = 64 if x.dtype != torch.float32 else 32
    deep = x.dtype != torch.float32 and shape.outputs == 128
    columns, warps = (128, 8) if deep else (min(64, shape.outputs), 4)
    inputs = min(64, shape.inputs)
    tiles = (shape.outputs // columns) * (shape.inputs // inputs) * shape.side
    splits = max(1, min(triton.cdiv(SPLIT_PROGRAMS, n * tiles), triton.cdiv(pixels, 4 * step)))
    chunk = triton.cdiv(triton.cdiv(pixels, splits), step) * step
    splits = triton.cdiv(pixels, chunk)
    parts = out if splits == 1 else x.new_empty(splits, n, shape.weights, dtype=torch.float32)
    row, split = (out.stride(0), 0) if splits == 1 else (shape.weights, n * shape.weights)
    _launch(
        triton_conv.weight_gradient, (tiles, n, splits), x, g, parts, valid_n, row, split, batch, chunk,
        H=shape.height, W=shape.width, C=shape.inputs, C_USED=shape.used, OH=shape.out_height, OW=shape.out_width,
        K=shape.outputs, SIDE=shape.side, STRIDE=shape.stride, PRECISION=_precision(x, shape), BK=columns, BC=inputs,
        BM=step, num_warps=warps, num_stages=3 if x.dtype != torch.float32 else 2,
    )  # fmt: skip
    if splits > 1:
        _launch(
            triton_conv.sum_splits, (triton.cdiv(shape.weights, SUM_BLOCK), n), parts, out, valid_n, out.stride(0),
            split, splits, shape.weights, BLOCK=SUM_BLOCK,
        )  # fmt: skip


def statistics(sums: Tensor, norm: Norm, pixels: int, batch: int, valid_n: Tensor) -> Tensor:
    n, tiles, _, k = sums.shape
    stats = sums.new_empty(4, n, batch if norm.groups else 1, k)
    if norm.groups:
        _launch(
            triton_norm.group_statistics, (batch, n), sums, norm.weight_nk, norm.bias_nk, stats,
            norm.weight_nk.stride(0), tiles // batch, pixels, norm.eps, n, K=k, GROUPS=norm.groups, num_warps=1,
        )  # fmt: skip
        return stats
    assert norm.mean_nk is not None and norm.var_nk is not None
    columns = min(16, k)
    _launch(
        triton_norm.batch_statistics, (k // columns, n), sums, norm.weight_nk, norm.bias_nk, norm.mean_nk, norm.var_nk,
        stats, valid_n, norm.weight_nk.stride(0), norm.mean_nk.stride(0), tiles, pixels, norm.eps, norm.momentum, n,
        K=k, BK=columns, BT=64,
    )  # fmt: skip
    return stats


def _norm_tiles(x: Tensor, stats: Tensor) -> tuple[int, int, bool]:
    """BM, BK, and whether there is a statistic per sample: then no tile may span two."""
    _, batch, height, width, k = x.shape
    columns = min(64, k)
    per_sample = stats.shape[2] == batch
    rows = NORM_TILE // columns
    return _tile(rows, height * width) if per_sample else rows, columns, per_sample


def apply(x: Tensor, stats: Tensor, valid_n: Tensor, skip: Tensor | None, *, relu: bool) -> Tensor:
    n, batch, height, width, k = x.shape
    rows, columns, per_sample = _norm_tiles(x, stats)
    y = torch.empty_like(x)
    _launch(
        triton_norm.apply, (triton.cdiv(batch * height * width, rows) * (k // columns), n), x, stats,
        x if skip is None else skip, y, valid_n, batch, height * width, n, K=k, PER_SAMPLE=per_sample,
        SKIP=skip is not None, RELU=relu, BM=rows, BK=columns,
    )  # fmt: skip
    return y


def norm_gradient(
    g: Tensor, x: Tensor, stats: Tensor, norm: Norm, valid_n: Tensor, mask: Tensor | Literal["self", "none"]
) -> Tensor:
    n, batch, height, width, k = x.shape
    pixels = height * width
    rows, columns, per_sample = _norm_tiles(x, stats)
    tiles = triton.cdiv(batch * pixels, rows)
    grid = (tiles * (k // columns), n)
    tile = {"K": k, "PER_SAMPLE": per_sample, "BM": rows, "BK": columns}
    sums = stats.new_empty(n, tiles, 2, k)
    how, out = ("out", mask) if isinstance(mask, Tensor) else (mask, x)
    _launch(triton_norm.gradient_sums, grid, g, x, out, stats, sums, batch, pixels, n, MASK=how, **tile)
    coefficients = stats.new_empty(2, *stats.shape[1:])
    if per_sample:
        tile_sums, sums = sums, stats.new_empty(n, batch, 2, k)
        _launch(
            triton_norm.group_coefficients, (batch, n), tile_sums, stats, norm.weight_nk, coefficients, sums,
            norm.weight_nk.stride(0), tiles // batch, pixels, n, K=k, GROUPS=norm.groups, num_warps=1,
        )  # fmt: skip
    channels = min(16, k)
    _launch(
        triton_norm.channel_gradients, (k // channels, n), sums, stats, norm.d_weight_nk, norm.d_bias_nk, coefficients,
        valid_n, norm.d_weight_nk.stride(0), sums.shape[1], pixels, n, K=k, COEFFICIENTS=not per_sample, BK=channels,
        BT=64,
    )  # fmt: skip
    dx = torch.empty_like(x)
    how = "self" if how == "self" else "none"
    _launch(
        triton_norm.apply_gradient, grid, g, x, stats, coefficients, dx, valid_n, batch, pixels, n, MASK=how, **tile
    )
    return dx


def loss(
    logits: Tensor, labels_nb: Tensor, valid_n: Tensor, smoothing: float, scale_n: Tensor
) -> tuple[Tensor, Tensor]:
    n, batch, classes = logits.shape
    losses_n, d_logits = logits.new_empty(n), torch.empty_like(logits)
    _launch(
        triton_step.loss, (n,), logits, labels_nb, valid_n, losses_n, d_logits, scale_n, batch, classes, smoothing,
        CLASSES=triton.next_power_of_2(classes), BM=16,
    )  # fmt: skip
    return losses_n, d_logits


def _rows_grid(update: Update) -> tuple[int, int]:
    n, row = update.parameters.shape
    return triton.cdiv(row, STEP_BLOCK), n


def _copied(update: Update) -> dict[str, Any]:
    return {"COPY": update.compute is not None, "BLOCK": STEP_BLOCK}


def _compute(update: Update) -> Tensor:
    return update.parameters if update.compute is None else update.compute


def sgd(update: Update, momenta: Tensor | None, *, momentum: float, nesterov: bool, weight_decay: float) -> None:
    _launch(
        triton_step.sgd, _rows_grid(update), update.parameters, update.gradients,
        update.parameters if momenta is None else momenta, _compute(update), update.lr, update.active_n,
        update.scale_n, update.parameters.shape[1], momentum, weight_decay, MOMENTUM=momenta is not None,
        NESTEROV=nesterov, **_copied(update),
    )  # fmt: skip


def adamw(update: Update, mean: Tensor, square: Tensor, steps_n: Tensor, *, weight_decay: float) -> None:
    steps_n.add_(update.active_n > 0)
    sizes_n, roots_n = update.lr / (1 - BETA1**steps_n), (1 - BETA2**steps_n).sqrt()
    _launch(
        triton_step.adamw, _rows_grid(update), update.parameters, update.gradients, mean, square, _compute(update),
        update.lr, update.active_n, update.scale_n, sizes_n, roots_n, update.parameters.shape[1], weight_decay, BETA1,
        BETA2, EPSILON, **_copied(update),
    )  # fmt: skip
