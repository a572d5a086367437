"""The operations as launches of the Triton kernels, each over all replicas at once; see `shapes.Operations`.

Tile sizes were chosen on an H200 for batches of 64; they decide how fast a launch is, and never what it computes.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch
import triton
from torch import Tensor

from gcpsl.kernels import triton_conv, triton_norm, triton_step
from gcpsl.kernels.plain import BETA1, BETA2, EPSILON
from gcpsl.kernels.shapes import Addend, Augmentation, ConvShape, Norm, Origin, Plan, Update

PROGRAMS = 128  # about one for each of a large GPU's multiprocessors
WAVE = 264  # two for each
NORM_TILE = 4096
SUM_STEPS, SUM_PROGRAMS = 8, 4 * PROGRAMS
STEP_BLOCK = 1024
SUM_BLOCK = 256
LANES = 2

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


_running: dict[int, torch.cuda.Stream] = {}


@cache
def _streams(device: torch.device) -> list[torch.cuda.Stream]:
    return [torch.cuda.Stream(device) for _ in range(LANES)]


@contextmanager
def beside(lane: int, device: torch.device) -> Iterator[None]:
    stream = _streams(device)[lane]
    stream.wait_stream(torch.cuda.current_stream(device))
    for lower in sorted(_running):
        if lower < lane:
            stream.wait_stream(_running[lower])
    _running[lane] = stream
    with torch.cuda.stream(stream):
        yield


def join(device: torch.device) -> None:
    for stream in _running.values():
        torch.cuda.current_stream(device).wait_stream(stream)
    _running.clear()


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


def _product_tiles(n: int, pixels: int, inner: int, outputs: int, x: Tensor) -> tuple[int, int, int]:
    """BM, BN and the length of a step of a product of (pixels, inner) with (inner, outputs) for each replica."""
    if x.dtype == torch.float32:
        return 64, min(outputs, 64), min(64, inner)
    columns, long = min(128, outputs), min(128, inner)
    choices = [(128, columns, min(64, inner)), (64, columns, long), (64, min(64, outputs), long)]
    full = (c for c in choices if n * triton.cdiv(pixels, c[0]) * (outputs // c[1]) >= PROGRAMS)
    return next(full, choices[-1])


def _pipelined(x: Tensor, tile: int) -> dict[str, Any]:
    """With warps enough for what a tile's sums and all that comes with them take of the registers."""
    stages = {"num_stages": 2 if x.dtype == torch.float32 else 3}
    return stages | ({"num_warps": 4} if tile <= 8192 else {"num_warps": 8, "maxnreg": 128})


def conv(x: Tensor, w: Tensor, shape: ConvShape, valid_n: Tensor, *, per_sample: bool) -> tuple[Tensor, Tensor]:
    n, batch = x.shape[:2]
    pixels = batch * shape.out_pixels
    rows, columns, step = _product_tiles(n, pixels, shape.inputs, shape.outputs, x)
    rows = _tile(rows, shape.out_pixels) if per_sample else rows
    tiles = triton.cdiv(pixels, rows)
    y = x.new_empty(n, batch, shape.out_height, shape.out_width, shape.outputs)
    sums = x.new_empty(n, tiles, 2, shape.outputs, dtype=torch.float32)
    _launch(
        triton_conv.forward, (tiles * (shape.outputs // columns), n), x, w, y, sums, valid_n, batch, w.stride(0),
        H=shape.height, W=shape.width, C=shape.inputs, C_USED=shape.used, OH=shape.out_height, OW=shape.out_width,
        K=shape.outputs, SIDE=shape.side, STRIDE=shape.stride, SUMS=True, PRECISION=_precision(x, shape), BM=rows,
        BN=columns, BC=step, **_pipelined(x, 0),
    )  # fmt: skip
    return y, sums


def input_gradient(
    g: Tensor, w: Tensor, shape: ConvShape, valid_n: Tensor, add: Addend | None, origin: Origin | None
) -> tuple[Tensor, Tensor | None]:
    n, batch = g.shape[:2]
    parities = shape.stride**2
    image = shape.height * shape.width // parities
    rows, columns, step = _product_tiles(n * parities, batch * image, shape.outputs, shape.inputs, g)
    rows = _tile(rows, image) if origin and origin.per_sample else rows
    tiles = triton.cdiv(batch * image, rows)
    dx = g.new_empty(n, batch, shape.height, shape.width, shape.inputs)
    sums = g.new_empty(n, tiles * parities, 2, shape.inputs, dtype=torch.float32) if origin else None
    x, out, stats, how = (g, g, g, "none") if origin is None else (origin.x, *_mask(origin))
    _launch(
        triton_conv.input_gradient, (tiles * (shape.inputs // columns), n, parities), g, w, dx,
        g if add is None else add.values, x, out, stats, g if sums is None else sums, valid_n, batch, w.stride(0),
        H=shape.height, W=shape.width, C=shape.inputs, OH=shape.out_height, OW=shape.out_width, K=shape.outputs,
        SIDE=shape.side, STRIDE=shape.stride, ADD=add.kind if add else "none", MASK=how, SUMS=origin is not None,
        PER_SAMPLE=origin is not None and origin.per_sample, PIECES=2 if origin and rows * columns > 4096 else 1,
        PRECISION=_precision(g, shape), BM=rows, BN=columns, BK=step, **_pipelined(g, rows * columns),
    )  # fmt: skip
    return dx, sums


def _splits(tiles: int, pixels: int) -> int:
    """Into how many parts to cut a sum over pixels: what fills the GPU, unless adding them up would cost more."""
    pixels_min = 768 if 4 * tiles <= WAVE else 4096
    return max(1, min(WAVE // tiles, pixels // pixels_min))


def weight_gradient(x: Tensor, g: Tensor, shape: ConvShape, valid_n: Tensor, out: Tensor) -> None:
    n, batch = x.shape[:2]
    pixels = batch * shape.out_pixels
    wide = x.dtype != torch.float32 and shape.outputs >= 128 and shape.stride == 1
    columns, inputs, step = min(128 if wide else 64, shape.outputs), min(64, shape.inputs), 32
    tiles = (shape.outputs // columns) * (shape.inputs // inputs) * shape.side
    splits = _splits(n * tiles, pixels)
    chunk = triton.cdiv(triton.cdiv(pixels, splits), step) * step
    splits = triton.cdiv(pixels, chunk)
    parts = out if splits == 1 else x.new_empty(splits, n, shape.weights, dtype=torch.float32)
    row, split = (out.stride(0), 0) if splits == 1 else (shape.weights, n * shape.weights)
    _launch(
        triton_conv.weight_gradient, (tiles, n, splits), x, g, parts, valid_n, row, split, batch, chunk,
        H=shape.height, W=shape.width, C=shape.inputs, C_USED=shape.used, OH=shape.out_height, OW=shape.out_width,
        K=shape.outputs, SIDE=shape.side, STRIDE=shape.stride, PRECISION=_precision(x, shape), BK=columns, BC=inputs,
        BM=step, num_warps=4, num_stages=2 if x.dtype == torch.float32 else 4,
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


def _norm_tiles(x: Tensor, per_sample: bool) -> tuple[int, int]:
    """BM and BK. Where there is a statistic per sample, no tile may span two."""
    _, _, height, width, k = x.shape
    columns = min(64, k)
    rows = NORM_TILE // columns
    return _tile(rows, height * width) if per_sample else rows, columns


def apply(x: Tensor, stats: Tensor, valid_n: Tensor, skip: Tensor | None, *, relu: bool) -> Tensor:
    n, batch, height, width, k = x.shape
    per_sample = stats.shape[2] == batch
    rows, columns = _norm_tiles(x, per_sample)
    y = torch.empty_like(x)
    _launch(
        triton_norm.apply, (triton.cdiv(batch * height * width, rows) * (k // columns), n), x, stats,
        x if skip is None else skip, y, valid_n, batch, height * width, n, K=k, PER_SAMPLE=per_sample,
        SKIP=skip is not None, RELU=relu, BM=rows, BK=columns,
    )  # fmt: skip
    return y


def _mask(origin: Origin) -> tuple[Tensor, Tensor, str]:
    """The mask as a tensor, or another in its place; the statistics; and what the kernels call such a mask."""
    if isinstance(origin.mask, Tensor):
        return origin.mask, origin.stats, "out"
    return origin.x, origin.stats, origin.mask


def gradient_sums(g: Tensor, origin: Origin) -> Tensor:
    n, batch, height, width, k = g.shape
    rows, columns = _norm_tiles(g, origin.per_sample)
    pieces = triton.cdiv(batch * height * width, rows)
    steps = min(SUM_STEPS, triton.next_power_of_2(1 + n * pieces * (k // columns) // SUM_PROGRAMS) // 2)
    steps = _tile(max(1, steps), height * width // rows) if origin.per_sample else max(1, steps)
    tiles = triton.cdiv(pieces, steps)
    out, stats, how = _mask(origin)
    sums = stats.new_empty(n, tiles, 2, k)
    _launch(
        triton_norm.gradient_sums, (tiles * (k // columns), n), g, origin.x, out, stats, sums, batch, height * width,
        n, K=k, PER_SAMPLE=origin.per_sample, MASK=how, BM=rows, BK=columns, STEPS=steps,
    )  # fmt: skip
    return sums


def norm_gradient(g: Tensor, sums: Tensor, origin: Origin, norm: Norm, valid_n: Tensor) -> Tensor:
    n, batch, height, width, k = g.shape
    pixels, stats = height * width, origin.stats
    coefficients = stats.new_empty(2, *stats.shape[1:])
    if origin.per_sample:
        tile_sums, sums = sums, stats.new_empty(n, batch, 2, k)
        _launch(
            triton_norm.group_coefficients, (batch, n), tile_sums, stats, norm.weight_nk, coefficients, sums,
            norm.weight_nk.stride(0), tile_sums.shape[1] // batch, pixels, n, K=k, GROUPS=norm.groups, num_warps=1,
        )  # fmt: skip
    channels = min(16, k)
    _launch(
        triton_norm.channel_gradients, (k // channels, n), sums, stats, norm.d_weight_nk, norm.d_bias_nk, coefficients,
        valid_n, norm.d_weight_nk.stride(0), sums.shape[1], pixels, n, K=k, COEFFICIENTS=not origin.per_sample,
        BK=channels, BT=64,
    )  # fmt: skip
    dx = torch.empty_like(g)
    rows, columns = _norm_tiles(g, origin.per_sample)
    _launch(
        triton_norm.apply_gradient, (triton.cdiv(batch * pixels, rows) * (k // columns), n), g, origin.x, stats,
        coefficients, dx, valid_n, batch, pixels, n, K=k, PER_SAMPLE=origin.per_sample, BM=rows, BK=columns,
    )  # fmt: skip
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


def _sizes(update: Update) -> tuple[int, int]:
    """How many elements a row has, and from where to where the next one lies."""
    return update.parameters.shape[1], update.parameters.stride(0)


def _copied(update: Update) -> dict[str, Any]:
    return {"COPY": update.compute is not None, "BLOCK": STEP_BLOCK}


def _compute(update: Update) -> Tensor:
    return update.parameters if update.compute is None else update.compute


def sgd(update: Update, momenta: Tensor | None, *, momentum: float, nesterov: bool, weight_decay: float) -> None:
    _launch(
        triton_step.sgd, _rows_grid(update), update.parameters, update.gradients,
        update.parameters if momenta is None else momenta, _compute(update), update.lr, update.active_n,
        update.scale_n, *_sizes(update), momentum, weight_decay, MOMENTUM=momenta is not None,
        NESTEROV=nesterov, **_copied(update),
    )  # fmt: skip


def adamw(update: Update, mean: Tensor, square: Tensor, steps_n: Tensor, *, weight_decay: float) -> None:
    steps_n.add_(update.active_n > 0)
    sizes_n, roots_n = update.lr / (1 - BETA1**steps_n), (1 - BETA2**steps_n).sqrt()
    _launch(
        triton_step.adamw, _rows_grid(update), update.parameters, update.gradients, mean, square, _compute(update),
        update.lr, update.active_n, update.scale_n, sizes_n, roots_n, *_sizes(update), weight_decay, BETA1,
        BETA2, EPSILON, **_copied(update),
    )  # fmt: skip
