"""Each Triton kernel against its twin: on a GPU where there is one, else through Triton's interpreter on the CPU."""

from __future__ import annotations

from typing import Any, Literal

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton")
from gcpsl.kernels import Addend, Augmentation, ConvShape, Norm, Origin, Plan, Update, fast, plain

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
torch.backends.cudnn.allow_tf32 = False
# 16-bit products are right only on the GPU: the interpreter keeps bfloat16 as bits
DTYPES = [torch.float32, torch.bfloat16, torch.float16] if DEVICE == "cuda" else [torch.float32]

if DEVICE == "cpu":
    from triton.runtime import interpreter

    patch_tensor = interpreter._patch_lang_tensor

    def with_loop_bounds(tensor: Any, scope: Any) -> None:
        """Triton 3.6's interpreter can't loop up to a value with NumPy 2.4, which no longer makes [5] a 5."""
        patch_tensor(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: self.handle.data.item())

    interpreter._patch_lang_tensor = with_loop_bounds

N, B = 2, 3
VALID = torch.tensor([3, 2], device=DEVICE)
SHAPES = {
    "3x3": ConvShape(8, 8, 16, 32, 3),
    "3x3 of stride 2": ConvShape(8, 8, 32, 16, 3, 2),
    "3x3 of many channels": ConvShape(4, 8, 128, 128, 3),
    "1x1": ConvShape(8, 4, 64, 16),
    "1x1 of stride 2": ConvShape(8, 8, 16, 16, 1, 2),
    "1x1 with columns that have no weights": ConvShape(4, 4, 32, 16, unused=5),
}


def normal(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(*shape).to(DEVICE, dtype)


def near(fast_one: Tensor, plain_one: Tensor, dtype: torch.dtype = torch.float32) -> None:
    """Equal up to the rounding of the type: relative to the largest value, as sums of many products are."""
    tolerance = {torch.float32: 2e-5, torch.bfloat16: 1e-2, torch.float16: 2e-3}[dtype]
    scale = float(plain_one.abs().max()) + 1e-6
    torch.testing.assert_close(fast_one.float(), plain_one.float(), rtol=0, atol=tolerance * scale)


def only_valid(x: Tensor) -> Tensor:
    """Zero behind the valid samples, as every value of a round is."""
    real = torch.arange(x.shape[1], device=DEVICE) < VALID[:, None]
    return x * real.view(*real.shape, *(1,) * (x.dim() - 2))


def filters(shape: ConvShape, dtype: torch.dtype) -> Tensor:
    """A piece of a longer row, as in the flat buffers."""
    return normal(N, shape.weights + 64, dtype=dtype)[:, : shape.weights]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("per_sample", [True, False])
@pytest.mark.parametrize("name", SHAPES)
def test_convolutions_and_their_sums(name: str, per_sample: bool, dtype: torch.dtype) -> None:
    shape = SHAPES[name]
    x = only_valid(normal(N, B, shape.height, shape.width, shape.inputs, dtype=dtype))
    w = filters(shape, dtype)
    y, sums = fast.conv(x, w, shape, VALID, per_sample=per_sample)
    expected, expected_sums = plain.conv(x, w, shape, VALID, per_sample=per_sample)
    near(y, expected, dtype)
    if per_sample:
        sums = sums.view(N, B, -1, 2, shape.outputs).sum(2)
    else:
        sums, expected_sums = sums.sum(1), expected_sums.sum(1)
    near(sums[..., 0, :], expected_sums[..., 0, :], dtype)
    near(sums[..., 1, :], expected_sums[..., 1, :], dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("add", ["none", "dense", "even"])
@pytest.mark.parametrize("name", [name for name, shape in SHAPES.items() if (shape.side, shape.stride) != (1, 2)])
def test_input_gradients_with_what_is_added(name: str, add: str, dtype: torch.dtype) -> None:
    shape = SHAPES[name]
    if shape.unused:
        pytest.skip("patches need no gradient")
    g = normal(N, B, shape.out_height, shape.out_width, shape.outputs, dtype=dtype)
    w = filters(shape, dtype)
    size = (N, B, shape.height, shape.width, shape.inputs)
    half = (N, B, shape.height // 2, shape.width // 2, shape.inputs)
    addends = {
        "none": None,
        "dense": Addend("dense", normal(*size, dtype=dtype)),
        "even": Addend("even", normal(*half, dtype=dtype)),
    }
    full = torch.full_like(VALID, B)
    near(
        fast.input_gradient(g, w, shape, full, addends[add], None)[0],
        plain.input_gradient(g, w, shape, full, addends[add], None)[0],
        dtype,
    )


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("mask", ["self", "none", "out"])
@pytest.mark.parametrize("per_sample", [True, False])
@pytest.mark.parametrize("name", ["3x3", "3x3 of stride 2", "1x1"])
def test_input_gradients_and_the_sums_that_the_norm_before_needs(
    name: str, per_sample: bool, mask: str, dtype: torch.dtype
) -> None:
    shape = SHAPES[name]
    g = only_valid(normal(N, B, shape.out_height, shape.out_width, shape.outputs, dtype=dtype))
    size = (N, B, shape.height, shape.width, shape.inputs)
    x, out = (only_valid(normal(*size, dtype=dtype)) for _ in range(2))
    stats = normal(4, N, B if per_sample else 1, shape.inputs)
    how: Tensor | Literal["self", "none"] = out if mask == "out" else "self" if mask == "self" else "none"
    origin, w = Origin(x, stats, how, per_sample), filters(shape, dtype)
    dx, sums = fast.input_gradient(g, w, shape, VALID, None, origin)
    expected, expected_sums = plain.input_gradient(g, w, shape, VALID, None, origin)
    assert sums is not None and expected_sums is not None
    near(dx, expected, dtype)
    parts = (N, B, -1, 2, shape.inputs)
    if per_sample:
        near(sums.view(*parts).sum(2), expected_sums.view(*parts).sum(2), dtype)
    near(sums.sum(1), expected_sums.sum(1), dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("batch", [3, 40])
@pytest.mark.parametrize("name", SHAPES)
def test_weight_gradients(name: str, batch: int, dtype: torch.dtype) -> None:
    shape = SHAPES[name]
    if batch > 3 and DEVICE == "cpu" and shape.inputs > 32:
        pytest.skip("too slow for the interpreter")
    x = normal(N, batch, shape.height, shape.width, shape.inputs, dtype=dtype)
    g = normal(N, batch, shape.out_height, shape.out_width, shape.outputs, dtype=dtype)
    ours, expected = (torch.zeros(N, shape.weights + 16, device=DEVICE)[:, : shape.weights] for _ in range(2))
    fast.weight_gradient(x, g, shape, VALID, ours)
    plain.weight_gradient(x, g, shape, VALID, expected)
    near(ours, expected, dtype)


def norm(groups: int, k: int) -> Norm:
    state = normal(N, 2 * k + 16).abs()
    rows, grads = normal(N, 2 * k + 16), torch.zeros(N, 2 * k, device=DEVICE)
    running = (None, None) if groups else (state[:, :k], state[:, k : 2 * k])
    return Norm(rows[:, :k], rows[:, k : 2 * k], grads[:, :k], grads[:, k:], groups, 1e-5, 0.1, *running)


def twice(one: Norm) -> tuple[Norm, Norm]:
    """The same norm with its own places to write to."""
    copies = []
    for _ in range(2):
        running = (None if t is None else t.clone() for t in (one.mean_nk, one.var_nk))
        grads = (torch.zeros_like(one.d_weight_nk), torch.zeros_like(one.d_bias_nk))
        copies.append(Norm(one.weight_nk, one.bias_nk, *grads, one.groups, one.eps, one.momentum, *running))
    return copies[0], copies[1]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("mask", ["self", "none", "out"])
@pytest.mark.parametrize("skip", [True, False])
@pytest.mark.parametrize("groups", [0, 4, 32])
def test_norms_forward_and_backward(groups: int, skip: bool, mask: str, dtype: torch.dtype) -> None:
    k, side = 32, 8
    shape = ConvShape(side, side, 16, k)
    x = only_valid(normal(N, B, side, side, 16, dtype=dtype))
    y, sums = fast.conv(x, filters(shape, dtype), shape, VALID, per_sample=groups > 0)
    added = only_valid(normal(N, B, side, side, k, dtype=dtype)) if skip else None
    ours, theirs = twice(norm(groups, k))
    stats = fast.statistics(sums, ours, side**2, B, VALID)
    expected_stats = plain.statistics(sums, theirs, side**2, B, VALID)
    for one, other in zip(stats, expected_stats, strict=True):
        near(one, other)
    if not groups:
        assert ours.mean_nk is not None and theirs.mean_nk is not None
        assert ours.var_nk is not None and theirs.var_nk is not None
        near(ours.mean_nk, theirs.mean_nk)
        near(ours.var_nk, theirs.var_nk)
    out = fast.apply(y, stats, VALID, added, relu=mask != "none")
    near(out, plain.apply(y, stats, VALID, added, relu=mask != "none"), dtype)

    g = only_valid(normal(N, B, side, side, k, dtype=dtype))
    how: Tensor | Literal["self", "none"] = out if mask == "out" else "self" if mask == "self" else "none"
    own_g, origin = g.clone(), Origin(y, stats, how, per_sample=groups > 0)
    sums, expected_sums = fast.gradient_sums(own_g, origin), plain.gradient_sums(g, origin)
    assert torch.equal(own_g, g)
    dx = fast.norm_gradient(g, sums, origin, ours, VALID)
    near(dx, plain.norm_gradient(g, expected_sums, origin, theirs, VALID), dtype)
    near(ours.d_weight_nk, theirs.d_weight_nk)
    near(ours.d_bias_nk, theirs.d_bias_nk)


@pytest.mark.parametrize("stem", [ConvShape(8, 8, 3, 16, 3), ConvShape(8, 8, 1, 16, 1), ConvShape(8, 8, 3, 16, 3, 2)])
@pytest.mark.parametrize(("crop_padding", "flip"), [(0, False), (2, True), (0, True), (4, False)])
def test_patches(stem: ConvShape, crop_padding: int, flip: bool) -> None:
    images = torch.randint(0, 256, (20, 8, 8, stem.inputs), dtype=torch.uint8, device=DEVICE)
    labels = torch.zeros(20, dtype=torch.int64, device=DEVICE)
    source = Augmentation(images, labels, normal(stem.inputs), normal(stem.inputs), crop_padding, flip)
    drawn = torch.randint(0, 20, (N, B), device=DEVICE)
    bits = torch.randint(-(2**63), 2**63 - 1, (N, B), device=DEVICE)
    columns = max(16, 32 if stem.side == 3 and stem.inputs == 3 else 16)
    ours, expected = (torch.full((N, B, stem.out_height, stem.out_width, columns), 7.0, device=DEVICE) for _ in "12")
    fast.patches(source, drawn, bits, VALID, stem, ours)
    plain.patches(source, drawn, bits, VALID, stem, expected)
    torch.testing.assert_close(ours, expected)


def plan() -> Plan:
    sizes = torch.tensor([[3, 3, 2], [3, 2, 0]], device=DEVICE)
    starts = torch.tensor([[0, 3, 6], [8, 11, 13]], device=DEVICE)
    samples = torch.randperm(16, device=DEVICE)
    bits = torch.randint(-(2**63), 2**63 - 1, (16,), device=DEVICE)
    until = torch.tensor([3, 2], device=DEVICE)
    return Plan(samples, bits, starts, sizes, torch.zeros(2, 3, device=DEVICE), torch.zeros_like(until), until)


def test_an_epoch_is_taken_round_by_round() -> None:
    labels = torch.randint(0, 5, (16,), device=DEVICE)
    torch.manual_seed(1)
    ours = plan()
    torch.manual_seed(1)
    theirs = plan()
    for round_index in range(4):
        one, other = fast.take(ours, labels, B), plain.take(theirs, labels, B)
        assert all(torch.equal(a, b) for a, b in zip(one, other, strict=True))
        assert one[3].tolist() == [[3, 3], [3, 2], [2, 0], [0, 0]][round_index]
        for n, size in enumerate(one[3].tolist()):
            start = int(ours.starts_nt[n, round_index]) if size else 0
            assert one[0][n, :size].tolist() == ours.samples[start : start + size].tolist()
        losses = normal(2)
        fast.advance(ours, losses, one[3])
        plain.advance(theirs, losses, other[3])
    assert torch.equal(ours.losses_nt, theirs.losses_nt)
    assert ours.turn_n.tolist() == theirs.turn_n.tolist() == [3, 2]


@pytest.mark.parametrize("classes", [2, 10, 100])
def test_the_loss_and_its_gradient(classes: int) -> None:
    logits, labels = 5 * normal(N, B, classes), torch.randint(0, classes, (N, B), device=DEVICE)
    scale_n = torch.tensor([1.0, 1024.0], device=DEVICE)
    ours = fast.loss(logits, labels, VALID, 0.1, scale_n)
    theirs = plain.loss(logits, labels, VALID, 0.1, scale_n)
    near(ours[0], theirs[0])
    near(ours[1], theirs[1])


def update(compute: bool) -> Update:
    rows, gradients = normal(3, 2000), normal(3, 2000)
    scale_n, active_n = torch.tensor([1.0, 4.0, 2.0], device=DEVICE), torch.tensor([3, 2, 0], device=DEVICE)
    low = rows.to(torch.float16) if compute else None
    return Update(rows, gradients, low, torch.tensor(0.1, device=DEVICE), active_n, scale_n)


def copied(one: Update) -> Update:
    low = None if one.compute is None else one.compute.clone()
    return Update(one.parameters.clone(), one.gradients, low, one.lr, one.active_n, one.scale_n)


def same(one: Update, other: Update) -> None:
    torch.testing.assert_close(one.parameters, other.parameters)
    if one.compute is not None and other.compute is not None:
        torch.testing.assert_close(one.compute, other.compute)


@pytest.mark.parametrize(("momentum", "nesterov"), [(0.0, False), (0.9, False), (0.9, True)])
def test_sgd_steps_the_active_rows(momentum: float, nesterov: bool) -> None:
    ours = update(compute=nesterov)
    theirs, optimizers = copied(ours), []
    rows = [torch.nn.Parameter(row.clone()) for row in ours.parameters]
    for row, gradient, scale in zip(rows, ours.gradients, ours.scale_n, strict=True):
        row.grad = gradient / scale
        optimizers.append(torch.optim.SGD([row], lr=0.1, momentum=momentum, nesterov=nesterov, weight_decay=0.01))
    one, other = (torch.zeros_like(ours.parameters) if momentum else None for _ in "12")
    for _ in range(3):
        fast.sgd(ours, one, momentum=momentum, nesterov=nesterov, weight_decay=0.01)
        plain.sgd(theirs, other, momentum=momentum, nesterov=nesterov, weight_decay=0.01)
        for optimizer in optimizers[:2]:
            optimizer.step()
    same(ours, theirs)
    torch.testing.assert_close(ours.parameters, torch.stack([row.detach() for row in rows]))


def test_adamw_steps_the_active_rows() -> None:
    ours = update(compute=True)
    theirs = copied(ours)
    rows = [torch.nn.Parameter(row.clone()) for row in ours.parameters]
    optimizers = [torch.optim.AdamW([row], lr=0.1, weight_decay=0.01) for row in rows]
    for row, gradient, scale in zip(rows, ours.gradients, ours.scale_n, strict=True):
        row.grad = gradient / scale
    one, other = ([torch.zeros_like(ours.parameters) for _ in "12"] + [normal(3) * 0] for _ in "12")
    for _ in range(3):
        fast.adamw(ours, *one, weight_decay=0.01)
        plain.adamw(theirs, *other, weight_decay=0.01)
        for optimizer in optimizers[:2]:
            optimizer.step()
    same(ours, theirs)
    assert one[2].tolist() == other[2].tolist() == [3, 3, 0]
    torch.testing.assert_close(ours.parameters, torch.stack([row.detach() for row in rows]), atol=1e-5, rtol=1e-4)


def test_a_round_that_is_rehearsed_computes_nothing() -> None:
    if DEVICE == "cpu":
        pytest.skip("the interpreter compiles nothing")
    ours = update(compute=False)
    before = ours.parameters.clone()
    with fast.compiled_ahead():
        fast.sgd(ours, None, momentum=0.0, nesterov=False, weight_decay=0.25)
    assert torch.equal(ours.parameters, before)
