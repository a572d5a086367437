"""Convolutions of N replicas in one launch, as implicit matrix products in Triton; the twins are in `plain`.

Names end in their order of dimensions: n replicas, b samples of one, h and w rows and columns, c channels in and k
channels out. Every tile is summed by one program in a fixed order, so equal inputs give equal bits.
"""

from __future__ import annotations

import triton
import triton.language as tl

from gcpsl.kernels.triton_norm import let_through


@triton.jit
def forward(
    x_nbhwc, w_nktc, y_nbhwk, sums, valid, batch, w_row, H: tl.constexpr, W: tl.constexpr, C: tl.constexpr,
    C_USED: tl.constexpr, OH: tl.constexpr, OW: tl.constexpr, K: tl.constexpr, SIDE: tl.constexpr,
    STRIDE: tl.constexpr, SUMS: tl.constexpr, PRECISION: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
    BC: tl.constexpr,
):  # fmt: skip
    """y[m, k] = sum over taps t and c of x[m moved by t, c] w[k, t, c]; m are the pixels of a replica's batch.

    With SUMS, each tile's sums of y and y^2 by channel go to sums[n, tile, 2, K].
    """
    n = tl.program_id(1).to(tl.int64)
    if tl.load(valid + n) == 0:
        return
    tile_m = tl.program_id(0) // (K // BN)
    k = tl.program_id(0) % (K // BN) * BN + tl.arange(0, BN)
    m = tile_m * BM + tl.arange(0, BM)
    c = tl.arange(0, BC)
    pixels = batch * OH * OW
    inside = m < pixels
    top = m % (OH * OW) // OW * STRIDE - SIDE // 2
    left = m % OW * STRIDE - SIDE // 2
    x_nbhwc += n * batch * H * W * C
    w_nktc += n * w_row
    corner = ((m // (OH * OW) * H + top) * W + left) * C
    acc = tl.zeros((BM, BN), tl.float32)
    for i in range(SIDE * SIDE * (C // BC)):
        tap, c0 = i // (C // BC), i % (C // BC) * BC
        r, s = tap // SIDE, tap % SIDE
        there = inside & (top + r >= 0) & (top + r < H) & (left + s >= 0) & (left + s < W)
        x = tl.load(x_nbhwc + (corner + (r * W + s) * C + c0)[:, None] + c[None, :], mask=there[:, None], other=0.0)
        w_at = w_nktc + (k * (SIDE * SIDE) + tap)[None, :] * C_USED + c0 + c[:, None]
        w = tl.load(w_at) if C_USED == C else tl.load(w_at, mask=c[:, None] < C_USED - c0, other=0.0)
        acc = tl.dot(x, w, acc, input_precision=PRECISION)
    y = y_nbhwk + n * pixels * K + m[:, None] * K + k[None, :]
    tl.store(y, acc.to(y_nbhwk.dtype.element_ty), mask=inside[:, None])
    if SUMS:
        tiles = tl.num_programs(0) // (K // BN)
        at = sums + ((n * tiles + tile_m) * 2) * K + k
        tl.store(at, tl.sum(acc, axis=0))
        tl.store(at + K, tl.sum(acc * acc, axis=0))


@triton.jit
def input_gradient(
    g_nbhwk, w_nktc, dx_nbhwc, add, norm_x, norm_out, stats, sums, valid, batch, w_row, H: tl.constexpr,
    W: tl.constexpr, C: tl.constexpr, OH: tl.constexpr, OW: tl.constexpr, K: tl.constexpr, SIDE: tl.constexpr,
    STRIDE: tl.constexpr, ADD: tl.constexpr, MASK: tl.constexpr, SUMS: tl.constexpr, PER_SAMPLE: tl.constexpr,
    PIECES: tl.constexpr, PRECISION: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """dx[m, c] = sum over the taps that saw pixel m, and k, of g[where it was seen, k] w[k, t, c].

    With stride 2 the pixels of one parity (third axis of the grid) see the same taps: 1, 2, 2 or 4 of 9. ADD brings in
    another gradient of the same pixels: "dense", or of the "even" pixels only. With SUMS, the pixels came out of
    a norm, and what `triton_norm.gradient_sums` makes of their gradient is made here.
    """
    n = tl.program_id(1).to(tl.int64)
    if tl.load(valid + n) == 0:
        return
    c = tl.program_id(0) % (C // BN) * BN + tl.arange(0, BN)
    m = tl.program_id(0) // (C // BN) * BM + tl.arange(0, BM)
    rows: tl.constexpr = (H + STRIDE - 1) // STRIDE
    columns: tl.constexpr = (W + STRIDE - 1) // STRIDE
    down = tl.program_id(2) // STRIDE
    across = tl.program_id(2) % STRIDE
    b = m // (rows * columns)
    i = m % (rows * columns) // columns
    j = m % columns
    y, x = i * STRIDE + down, j * STRIDE + across
    inside = (b < batch) & (y < H) & (x < W)
    acc = _seen(
        g_nbhwk + n * batch * OH * OW * K, w_nktc + n * w_row, c, b, i, j, inside, down, across, C, OH, OW, K, SIDE,
        STRIDE, PRECISION, BM, BN, BK,
    )  # fmt: skip
    at = (n * batch * H * W + (b * H + y) * W + x) * C
    if ADD == "even":
        half = (n * batch * ((H + 1) // 2) + b * ((H + 1) // 2) + y // 2) * ((W + 1) // 2) + x // 2
        add += half * C
        added = inside & (y % 2 == 0) & (x % 2 == 0)
    else:
        add += at
        added = inside
    tile = tl.program_id(0) // (C // BN)
    sums += (n * (tl.num_programs(0) // (C // BN) * tl.num_programs(2)) + tile * tl.num_programs(2)) * 2 * C
    sums += tl.program_id(2) * 2 * C
    if PER_SAMPLE:
        stats += (n * batch + tile * BM // (rows * columns)) * C
        plane = tl.num_programs(1) * batch * C
    else:
        stats += n * C
        plane = tl.num_programs(1) * C
    if PIECES == 2:
        # a half at a time, because all that comes in here would not fit into the registers beside the whole sum
        left, right = tl.split(tl.permute(tl.reshape(acc, (BM, 2, BN // 2)), (0, 2, 1)))
        first = tl.program_id(0) % (C // BN) * BN + tl.arange(0, BN // 2)
        _finish(left, first, at, inside, added, dx_nbhwc, add, norm_x, norm_out, stats, plane, sums, C, ADD, MASK, SUMS)
        first += BN // 2
        _finish(
            right, first, at, inside, added, dx_nbhwc, add, norm_x, norm_out, stats, plane, sums, C, ADD, MASK, SUMS
        )
    else:
        _finish(acc, c, at, inside, added, dx_nbhwc, add, norm_x, norm_out, stats, plane, sums, C, ADD, MASK, SUMS)


@triton.jit
def _seen(
    g_bhwk, w_ktc, c, b, i, j, inside, down, across, C: tl.constexpr, OH: tl.constexpr, OW: tl.constexpr,
    K: tl.constexpr, SIDE: tl.constexpr, STRIDE: tl.constexpr, PRECISION: tl.constexpr, BM: tl.constexpr,
    BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """The sum over taps and k of `input_gradient`, for the pixels of one parity in rows i and columns j of image b."""
    if STRIDE == 1:
        taps_r, taps_s = SIDE, SIDE
    else:
        taps_r, taps_s = 1 + down, 1 + across
    k = tl.arange(0, BK)
    acc = tl.zeros((BM, BN), tl.float32)
    for step in range(taps_r * taps_s * (K // BK)):
        tap, k0 = step // (K // BK), step % (K // BK) * BK
        tr, ts = tap // taps_s, tap % taps_s
        if STRIDE == 1:
            r, s = tr, ts
            oy, ox = i + SIDE // 2 - r, j + SIDE // 2 - s
        else:
            r, s = 1 - down + 2 * tr, 1 - across + 2 * ts
            oy, ox = i + down * (1 - tr), j + across * (1 - ts)
        there = inside & (oy >= 0) & (oy < OH) & (ox >= 0) & (ox < OW)
        g = tl.load(g_bhwk + (((b * OH + oy) * OW + ox) * K + k0)[:, None] + k[None, :], mask=there[:, None], other=0.0)
        w = tl.load(w_ktc + ((k0 + k) * (SIDE * SIDE) + r * SIDE + s)[:, None] * C + c[None, :])
        acc = tl.dot(g, w, acc, input_precision=PRECISION)
    return acc


@triton.jit
def _finish(
    acc, c, at, inside, added, dx, add, norm_x, norm_out, stats, plane, sums, C: tl.constexpr, ADD: tl.constexpr,
    MASK: tl.constexpr, SUMS: tl.constexpr,
):  # fmt: skip
    """Bring in the other gradient, make the norm's sums, and store: of some pixels' channels c."""
    at = at[:, None] + c[None, :]
    inside = inside[:, None]
    if ADD != "none":
        acc += tl.load(add[:, None] + c[None, :], mask=added[:, None], other=0.0).to(tl.float32)
    if SUMS:
        acc, times_normal = let_through(acc, norm_x + at, norm_out + at, stats + c, plane, inside, MASK)
        tl.store(sums + c, tl.sum(acc, axis=0))
        tl.store(sums + C + c, tl.sum(times_normal, axis=0))
    tl.store(dx + at, acc.to(dx.dtype.element_ty), mask=inside)


@triton.jit
def weight_gradient(
    x_nbhwc, g_nbhwk, out, valid, out_row, out_split, batch, chunk, H: tl.constexpr, W: tl.constexpr, C: tl.constexpr,
    C_USED: tl.constexpr, OH: tl.constexpr, OW: tl.constexpr, K: tl.constexpr, SIDE: tl.constexpr,
    STRIDE: tl.constexpr, PRECISION: tl.constexpr, BK: tl.constexpr, BC: tl.constexpr, BM: tl.constexpr,
):  # fmt: skip
    """out[split, n, k, t, c] = sum over the split's pixels m of g[m, k] x[m moved by t, c], a filter row at a time."""
    n = tl.program_id(1).to(tl.int64)
    if tl.load(valid + n) == 0:
        return
    split = tl.program_id(2)
    pid = tl.program_id(0)
    c = pid % (C // BC) * BC + tl.arange(0, BC)
    k = pid // (C // BC) % (K // BK) * BK + tl.arange(0, BK)
    r = pid // (C // BC * (K // BK))
    pixels = batch * OH * OW
    g_nbhwk += n * pixels * K
    x_nbhwc += n * batch * H * W * C
    acc0 = tl.zeros((BK, BC), tl.float32)
    acc1 = tl.zeros((BK, BC), tl.float32)
    acc2 = tl.zeros((BK, BC), tl.float32)
    stop = tl.minimum((split + 1) * chunk, pixels)
    for m0 in range(split * chunk, stop, BM):
        m = m0 + tl.arange(0, BM)
        inside = m < stop
        y = m % (OH * OW) // OW * STRIDE - SIDE // 2 + r
        x = m % OW * STRIDE - SIDE // 2
        g = tl.trans(tl.load(g_nbhwk + m[:, None] * K + k[None, :], mask=inside[:, None], other=0.0))
        row = inside & (y >= 0) & (y < H)
        at = x_nbhwc + ((m // (OH * OW) * H + y) * W + x)[:, None] * C + c[None, :]
        x0 = tl.load(at, mask=(row & (x >= 0) & (x < W))[:, None], other=0.0)
        acc0 = tl.dot(g, x0, acc0, input_precision=PRECISION)
        if SIDE == 3:
            x1 = tl.load(at + C, mask=(row & (x + 1 < W))[:, None], other=0.0)
            acc1 = tl.dot(g, x1, acc1, input_precision=PRECISION)
            x2 = tl.load(at + 2 * C, mask=(row & (x + 2 < W))[:, None], other=0.0)
            acc2 = tl.dot(g, x2, acc2, input_precision=PRECISION)
    used = c[None, :] < C_USED
    out += split * out_split + n * out_row + (k[:, None] * SIDE + r) * SIDE * C_USED + c[None, :]
    tl.store(out, acc0, mask=used)
    if SIDE == 3:
        tl.store(out + C_USED, acc1, mask=used)
        tl.store(out + 2 * C_USED, acc2, mask=used)


@triton.jit
def sum_splits(parts, out, valid, out_row, out_split, splits, size, BLOCK: tl.constexpr):
    """out[n] = the sum of parts[split, n] over the splits, in order."""
    n = tl.program_id(1).to(tl.int64)
    if tl.load(valid + n) == 0:
        return
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    acc = tl.zeros((BLOCK,), tl.float32)
    for split in range(splits):
        acc += tl.load(parts + split * out_split + n * size + i, mask=i < size, other=0.0)
    tl.store(out + n * out_row + i, acc, mask=i < size)
