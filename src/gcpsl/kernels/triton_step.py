"""A round's two ends in Triton: the batch out of the samples on the device, and the optimizer on the flat buffers."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def patches(
    images, factor, offset, samples, bits, valid, out, per_image,
    H: tl.constexpr, W: tl.constexpr, CH: tl.constexpr, OH: tl.constexpr, OW: tl.constexpr, SIDE: tl.constexpr,
    STRIDE: tl.constexpr, PADDING: tl.constexpr, FLIP: tl.constexpr, WIDTH: tl.constexpr, BM: tl.constexpr,
):  # fmt: skip
    """out[n, b, pixel, (r, s, channel)]: what the first convolution sees of each augmented, normalised image.

    An image's bits 0-30 crop it down, 31-61 across, and 63 flips it, as `data.device.DeviceSamples` does.
    """
    b, n = tl.program_id(0) // per_image, tl.program_id(1)
    batch = tl.num_programs(0) // per_image
    m = tl.program_id(0) % per_image * BM + tl.arange(0, BM)
    q = tl.arange(0, WIDTH)
    r, s, channel = q // (SIDE * CH), q // CH % SIDE, q % CH
    y = (m // OW * STRIDE)[:, None] + (r - SIDE // 2)[None, :]
    x = (m % OW * STRIDE)[:, None] + (s - SIDE // 2)[None, :]
    real = (b < tl.load(valid + n)) & (q < SIDE * SIDE * CH)[None, :] & (m < OH * OW)[:, None]
    shown = real & (y >= 0) & (y < H) & (x >= 0) & (x < W)
    if FLIP or PADDING > 0:
        word = tl.load(bits + n * batch + b)
    if FLIP:
        x = tl.where(word < 0, W - 1 - x, x)
    if PADDING > 0:
        y += ((word & 0x7FFFFFFF) % (2 * PADDING + 1)).to(tl.int32) - PADDING
        x += ((word >> 31 & 0x7FFFFFFF) % (2 * PADDING + 1)).to(tl.int32) - PADDING
    there = shown & (y >= 0) & (y < H) & (x >= 0) & (x < W)
    sample = tl.load(samples + n * batch + b).to(tl.int64)
    pixel = tl.load(images + ((sample * H + y) * W + x) * CH + channel[None, :], mask=there, other=0)
    of_channel = channel[None, :]
    value = pixel.to(tl.float32) * tl.load(factor + of_channel) + tl.load(offset + of_channel)
    value = tl.where(shown, value, 0.0)
    at = ((n * batch + b).to(tl.int64) * OH * OW + m)[:, None] * WIDTH + q[None, :]
    tl.store(out + at, value.to(out.dtype.element_ty), mask=(m < OH * OW)[:, None])


@triton.jit
def take(
    samples, bits, labels, starts, sizes, turn, until, batch_samples, batch_bits, batch_labels, valid, rounds, entries,
    batch, BM: tl.constexpr,
):  # fmt: skip
    """Each replica's next round: which samples, their bits and labels, and how many of the batch count."""
    n = tl.program_id(0)
    t = tl.load(turn + n)
    at = n * rounds + tl.minimum(t, rounds - 1)
    tl.store(valid + n, tl.where(t < tl.load(until + n), tl.load(sizes + at), 0))
    start = tl.load(starts + at)
    for first in range(0, batch, BM):
        b = first + tl.arange(0, BM)
        entry = tl.minimum(start + b, entries - 1)
        sample = tl.load(samples + entry)
        tl.store(batch_samples + n * batch + b, sample, mask=b < batch)
        tl.store(batch_bits + n * batch + b, tl.load(bits + entry), mask=b < batch)
        tl.store(batch_labels + n * batch + b, tl.load(labels + sample), mask=b < batch)


@triton.jit
def advance(losses, valid, turn, kept, rounds):
    """Write down the round's losses, and turn to the next."""
    n = tl.program_id(0)
    if tl.load(valid + n) > 0:
        t = tl.load(turn + n)
        tl.store(kept + n * rounds + t, tl.load(losses + n))
        tl.store(turn + n, t + 1)


@triton.jit
def loss(
    logits, labels, valid, losses, d_logits, scales, batch, classes, smoothing, CLASSES: tl.constexpr, BM: tl.constexpr
):  # fmt: skip
    """Each replica's mean smoothed cross-entropy over its valid samples, and its scale times the gradient."""
    n = tl.program_id(0)
    samples = tl.load(valid + n)
    count = tl.maximum(samples, 1).to(tl.float32)
    scale = tl.load(scales + n)
    c = tl.arange(0, CLASSES)[None, :]
    total = tl.zeros((BM,), tl.float32)
    for first in range(0, batch, BM):
        b = first + tl.arange(0, BM)
        real = (b < batch)[:, None] & (c < classes)
        at = (n * batch + b)[:, None] * classes + c
        value = tl.load(logits + at, mask=real, other=float("-inf"))
        value = tl.where((b < batch)[:, None], value, 0.0)
        value -= tl.max(value, axis=1)[:, None]
        log_p = value - tl.log(tl.sum(tl.exp(value), axis=1))[:, None]
        label = tl.load(labels + n * batch + b, mask=b < batch, other=0)[:, None]
        target = tl.where(c == label, 1 - smoothing, 0.0) + smoothing / classes
        counted = (b < samples)[:, None] & (c < classes)
        total += tl.sum(tl.where(counted, -target * log_p, 0.0), axis=1)
        gradient = tl.where(counted, (tl.exp(log_p) - target) / count, 0.0)
        tl.store(d_logits + at, gradient * scale, mask=real)
    tl.store(losses + n, tl.sum(total) / count)


@triton.jit
def sgd(
    parameters, gradients, momenta, compute, lr, active, scales, size, row, momentum, decay,
    MOMENTUM: tl.constexpr, NESTEROV: tl.constexpr, COPY: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """PyTorch's SGD step on each active replica's row, whose parameters are kept in the products' precision too."""
    n = tl.program_id(1).to(tl.int64)
    if tl.load(active + n) > 0:
        i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        there = i < size
        at = n * row + i
        p = tl.load(parameters + at, mask=there, other=0.0)
        g = tl.load(gradients + at, mask=there, other=0.0) / tl.load(scales + n) + decay * p
        if MOMENTUM:
            v = momentum * tl.load(momenta + at, mask=there, other=0.0) + g
            tl.store(momenta + at, v, mask=there)
            g = g + momentum * v if NESTEROV else v
        p -= tl.load(lr) * g
        tl.store(parameters + at, p, mask=there)
        if COPY:
            tl.store(compute + at, p.to(compute.dtype.element_ty), mask=there)


@triton.jit
def adamw(
    parameters, gradients, means, squares, compute, lr, active, scales, sizes, roots, size, row, decay, beta1, beta2,
    epsilon, COPY: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """PyTorch's AdamW step. `sizes` are lr / (1 - beta1^steps), `roots` sqrt(1 - beta2^steps), one per replica."""
    n = tl.program_id(1).to(tl.int64)
    if tl.load(active + n) > 0:
        i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        there = i < size
        at = n * row + i
        g = tl.load(gradients + at, mask=there, other=0.0) / tl.load(scales + n)
        mean = tl.load(means + at, mask=there, other=0.0)
        mean += (1 - beta1) * (g - mean)
        square = beta2 * tl.load(squares + at, mask=there, other=0.0) + (1 - beta2) * g * g
        tl.store(means + at, mean, mask=there)
        tl.store(squares + at, square, mask=there)
        p = tl.load(parameters + at, mask=there, other=0.0) * (1 - tl.load(lr) * decay)
        p -= tl.load(sizes + n) * mean / (tl.sqrt(square) / tl.load(roots + n) + epsilon)
        tl.store(parameters + at, p, mask=there)
        if COPY:
            tl.store(compute + at, p.to(compute.dtype.element_ty), mask=there)
