"""BatchNorm and GroupNorm with the ReLU and the addition after them, for N replicas in one launch, channels last.

Both are y = relu(scale x + shift + skip). A BatchNorm's scale and shift are one per channel of a replica, a GroupNorm's
one per channel of a sample; `STATS` says how many there are per replica: 1, or `batch`. Sums come in by tiles of pixels
[n, tile, 2, k], and every sum is taken in a fixed order. A replica's batch counts only its first `valid[n]` samples;
what stands behind them is zero and stays zero.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def batch_statistics(
    sums, weight, bias, running_mean, running_var, stats, valid, w_row, state_row, tiles, pixels, eps, momentum,
    N, K: tl.constexpr, BK: tl.constexpr, BT: tl.constexpr,
):  # fmt: skip
    """scale, shift, mean, 1/std of each channel into stats[4, n, k], and the running mean and variance moved on."""
    n = tl.program_id(1)
    k = tl.program_id(0) * BK + tl.arange(0, BK)
    total = tl.zeros((BK,), tl.float32)
    squares = tl.zeros((BK,), tl.float32)
    for first in range(0, tiles, BT):
        tile = first + tl.arange(0, BT)
        at = sums + ((n * tiles + tile[:, None]) * 2) * K + k[None, :]
        total += tl.sum(tl.load(at, mask=tile[:, None] < tiles, other=0.0), axis=0)
        squares += tl.sum(tl.load(at + K, mask=tile[:, None] < tiles, other=0.0), axis=0)
    samples = tl.load(valid + n)
    count = tl.maximum(samples * pixels, 1).to(tl.float32)
    mean = total / count
    var = tl.maximum(squares / count - mean * mean, 0.0)
    rstd = 1 / tl.sqrt(var + eps)
    scale = tl.load(weight + n * w_row + k) * rstd
    at = stats + n * K + k
    tl.store(at, scale)
    tl.store(at + N * K, tl.load(bias + n * w_row + k) - mean * scale)
    tl.store(at + 2 * N * K, mean)
    tl.store(at + 3 * N * K, rstd)
    if samples > 0:
        unbiased = var * count / tl.maximum(count - 1, 1.0)
        at = running_mean + n * state_row + k
        tl.store(at, (1 - momentum) * tl.load(at) + momentum * mean)
        at = running_var + n * state_row + k
        tl.store(at, (1 - momentum) * tl.load(at) + momentum * unbiased)


@triton.jit
def _over_groups(values, K: tl.constexpr, GROUPS: tl.constexpr):
    """Each channel's value replaced by the sum over its group."""
    grouped = tl.reshape(values, (GROUPS, K // GROUPS))
    total = tl.sum(grouped, axis=1)
    return tl.reshape(tl.broadcast_to(total[:, None], (GROUPS, K // GROUPS)), (K,))


@triton.jit
def group_statistics(
    sums, weight, bias, stats, w_row, tiles, pixels, eps, N, K: tl.constexpr, GROUPS: tl.constexpr
):  # fmt: skip
    """scale, shift, mean, 1/std of each channel of a sample into stats[4, n, b, k]; `tiles` are a sample's."""
    b, n = tl.program_id(0), tl.program_id(1)
    batch = tl.num_programs(0)
    k = tl.arange(0, K)
    total = tl.zeros((K,), tl.float32)
    squares = tl.zeros((K,), tl.float32)
    for tile in range(tiles):
        at = sums + (((n * batch + b) * tiles + tile) * 2) * K + k
        total += tl.load(at)
        squares += tl.load(at + K)
    count = pixels * (K // GROUPS)
    mean = _over_groups(total, K, GROUPS) / count
    var = tl.maximum(_over_groups(squares, K, GROUPS) / count - mean * mean, 0.0)
    rstd = 1 / tl.sqrt(var + eps)
    scale = tl.load(weight + n * w_row + k) * rstd
    at = stats + (n * batch + b) * K + k
    tl.store(at, scale)
    tl.store(at + N * batch * K, tl.load(bias + n * w_row + k) - mean * scale)
    tl.store(at + 2 * N * batch * K, mean)
    tl.store(at + 3 * N * batch * K, rstd)


@triton.jit
def apply(
    x, stats, skip, y, valid, batch, pixels, N, K: tl.constexpr, PER_SAMPLE: tl.constexpr, SKIP: tl.constexpr,
    RELU: tl.constexpr, BM: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """y = relu(scale x + shift + skip), zero behind the valid samples."""
    n = tl.program_id(1)
    m = tl.program_id(0) // (K // BK) * BM + tl.arange(0, BM)
    k = tl.program_id(0) % (K // BK) * BK + tl.arange(0, BK)
    inside = (m < batch * pixels)[:, None]
    at = n.to(tl.int64) * batch * pixels * K + m[:, None] * K + k[None, :]
    if PER_SAMPLE:
        b = tl.program_id(0) // (K // BK) * BM // pixels
        stat = stats + (n * batch + b) * K + k
        plane = N * batch * K
    else:
        stat = stats + n * K + k
        plane = N * K
    value = tl.load(x + at, mask=inside, other=0.0).to(tl.float32) * tl.load(stat)[None, :]
    value += tl.load(stat + plane)[None, :]
    if SKIP:
        value += tl.load(skip + at, mask=inside, other=0.0).to(tl.float32)
    if RELU:
        value = tl.maximum(value, 0.0)
    value = tl.where((m < tl.load(valid + n) * pixels)[:, None], value, 0.0)
    tl.store(y + at, value.to(y.dtype.element_ty), mask=inside)


@triton.jit
def let_through(grad, x_at, out_at, stat, plane, inside, MASK: tl.constexpr):
    """The gradient where the ReLU let through, zero elsewhere, and that times the normalised x.

    With MASK "self" it let through where scale x + shift > 0, with "out" where out > 0, with "none" everywhere.
    """
    value = tl.load(x_at, mask=inside, other=0.0).to(tl.float32)
    if MASK == "self":
        grad = tl.where(value * tl.load(stat)[None, :] + tl.load(stat + plane)[None, :] > 0, grad, 0.0)
    if MASK == "out":
        grad = tl.where(tl.load(out_at, mask=inside, other=0.0) > 0, grad, 0.0)
    normal = (value - tl.load(stat + 2 * plane)[None, :]) * tl.load(stat + 3 * plane)[None, :]
    return grad, grad * normal


@triton.jit
def gradient_sums(
    g, x, out, stats, sums, batch, pixels, N, K: tl.constexpr, PER_SAMPLE: tl.constexpr, MASK: tl.constexpr,
    BM: tl.constexpr, BK: tl.constexpr, STEPS: tl.constexpr,
):  # fmt: skip
    """Each tile's sums of the gradient and of the gradient times the normalised x: sums[n, tile, 2, k].

    The gradient becomes zero where the ReLU let nothing through. A tile is STEPS pieces of BM pixels, added up before
    they are summed, which costs more than reading them.
    """
    n = tl.program_id(1)
    tile = tl.program_id(0) // (K // BK)
    k = tl.program_id(0) % (K // BK) * BK + tl.arange(0, BK)
    if PER_SAMPLE:
        stat = stats + (n * batch + tile * BM * STEPS // pixels) * K + k
        plane = N * batch * K
    else:
        stat = stats + n * K + k
        plane = N * K
    total = tl.zeros((BM, BK), tl.float32)
    along = tl.zeros((BM, BK), tl.float32)
    for step in range(STEPS):
        m = (tile * STEPS + step) * BM + tl.arange(0, BM)
        inside = (m < batch * pixels)[:, None]
        at = n.to(tl.int64) * batch * pixels * K + m[:, None] * K + k[None, :]
        grad = tl.load(g + at, mask=inside, other=0.0).to(tl.float32)
        grad, times_normal = let_through(grad, x + at, out + at, stat, plane, inside, MASK)
        if MASK != "none":
            tl.store(g + at, grad.to(g.dtype.element_ty), mask=inside)
        total += grad
        along += times_normal
    tiles = tl.num_programs(0) // (K // BK)
    to = sums + ((n * tiles + tile) * 2) * K + k
    tl.store(to, tl.sum(total, axis=0))
    tl.store(to + K, tl.sum(along, axis=0))


@triton.jit
def channel_gradients(
    sums, stats, d_weight, d_bias, coefficients, valid, d_row, tiles, pixels, N, K: tl.constexpr,
    COEFFICIENTS: tl.constexpr, BK: tl.constexpr, BT: tl.constexpr,
):  # fmt: skip
    """The weight's and bias's gradients; with COEFFICIENTS (BatchNorm) also what `apply_gradient` needs, [2, n, k]."""
    n = tl.program_id(1)
    k = tl.program_id(0) * BK + tl.arange(0, BK)
    total = tl.zeros((BK,), tl.float32)
    along = tl.zeros((BK,), tl.float32)
    for first in range(0, tiles, BT):
        tile = first + tl.arange(0, BT)
        at = sums + ((n * tiles + tile[:, None]) * 2) * K + k[None, :]
        total += tl.sum(tl.load(at, mask=tile[:, None] < tiles, other=0.0), axis=0)
        along += tl.sum(tl.load(at + K, mask=tile[:, None] < tiles, other=0.0), axis=0)
    tl.store(d_bias + n * d_row + k, total)
    tl.store(d_weight + n * d_row + k, along)
    if COEFFICIENTS:
        count = tl.maximum(tl.load(valid + n) * pixels, 1).to(tl.float32)
        at = stats + n * K + k
        scale, mean, rstd = tl.load(at), tl.load(at + 2 * N * K), tl.load(at + 3 * N * K)
        slope = -scale * rstd * along / count
        tl.store(coefficients + n * K + k, slope)
        tl.store(coefficients + (N + n) * K + k, -scale * total / count - slope * mean)


@triton.jit
def group_coefficients(
    sums, stats, weight, coefficients, totals, w_row, tiles, pixels, N, K: tl.constexpr, GROUPS: tl.constexpr
):  # fmt: skip
    """What `apply_gradient` needs of a GroupNorm, [2, n, b, k], and each sample's sums over its tiles, [n, b, 2, k]."""
    b, n = tl.program_id(0), tl.program_id(1)
    batch = tl.num_programs(0)
    k = tl.arange(0, K)
    total = tl.zeros((K,), tl.float32)
    along = tl.zeros((K,), tl.float32)
    for tile in range(tiles):
        at = sums + (((n * batch + b) * tiles + tile) * 2) * K + k
        total += tl.load(at)
        along += tl.load(at + K)
    at = totals + (n * batch + b) * 2 * K + k
    tl.store(at, total)
    tl.store(at + K, along)
    w = tl.load(weight + n * w_row + k)
    count = pixels * (K // GROUPS)
    mean_g = _over_groups(total * w, K, GROUPS) / count
    mean_gx = _over_groups(along * w, K, GROUPS) / count
    at = stats + (n * batch + b) * K + k
    mean, rstd = tl.load(at + 2 * N * batch * K), tl.load(at + 3 * N * batch * K)
    slope = -rstd * rstd * mean_gx
    tl.store(coefficients + (n * batch + b) * K + k, slope)
    tl.store(coefficients + ((N + n) * batch + b) * K + k, -rstd * mean_g - slope * mean)


@triton.jit
def apply_gradient(
    g, x, stats, coefficients, dx, valid, batch, pixels, N, K: tl.constexpr, PER_SAMPLE: tl.constexpr,
    BM: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """dx = scale g + slope x + offset, zero behind the valid samples."""
    n = tl.program_id(1)
    m = tl.program_id(0) // (K // BK) * BM + tl.arange(0, BM)
    k = tl.program_id(0) % (K // BK) * BK + tl.arange(0, BK)
    inside = (m < batch * pixels)[:, None]
    at = n.to(tl.int64) * batch * pixels * K + m[:, None] * K + k[None, :]
    if PER_SAMPLE:
        row = (n * batch + tl.program_id(0) // (K // BK) * BM // pixels) * K + k
        plane = N * batch * K
    else:
        row = n * K + k
        plane = N * K
    scale = tl.load(stats + row)[None, :]
    value = tl.load(x + at, mask=inside, other=0.0).to(tl.float32)
    grad = tl.load(g + at, mask=inside, other=0.0).to(tl.float32)
    result = scale * grad + tl.load(coefficients + row)[None, :] * value
    result += tl.load(coefficients + plane + row)[None, :]
    result = tl.where((m < tl.load(valid + n) * pixels)[:, None], result, 0.0)
    tl.store(dx + at, result.to(dx.dtype.element_ty), mask=inside)
