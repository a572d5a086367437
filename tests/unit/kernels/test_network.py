"""The stacked network against autograd on each replica by itself, in float64."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from unit.kernels.stacked import rows_of, split_model, stack_of

from gcpsl.flat import FlatSegment
from gcpsl.kernels import Augmentation, plain
from gcpsl.kernels.layers import read
from gcpsl.kernels.network import Network

N, B, CLASSES = 3, 6, 5


def samples(count: int = 40) -> Augmentation:
    images = torch.randint(0, 256, (count, 16, 16, 3), dtype=torch.uint8)
    factor, offset = torch.rand(3, dtype=torch.float64) / 64, torch.randn(3, dtype=torch.float64)
    return Augmentation(images, torch.randint(0, CLASSES, (count,)), factor, offset, crop_padding=0, flip=False)


def by_autograd(segments: tuple[FlatSegment, FlatSegment], images: Tensor, labels: Tensor) -> float:
    """Fills the segments' gradients; their running statistics move."""
    logits = segments[1].module(segments[0].module(images))
    loss = cross_entropy(logits, labels, label_smoothing=0.1)
    loss.backward()
    return loss.item()


@pytest.mark.parametrize("cut", ["layer1", "layer2", "layer2.2"])
@pytest.mark.parametrize("sizes", [(6, 6, 6), (6, 5, 0)])
def test_gradients_losses_and_running_statistics_are_autograds(cut: str, sizes: tuple[int, ...]) -> None:
    replicas, stack = stack_of(split_model(cut), N)
    rows = rows_of(stack)
    network = Network(read([s.module for s in replicas[0]], (3, 16, 16)), stack.offsets(), plain, tf32=False)
    source = samples()
    drawn, valid_n = torch.randint(0, 40, (N, B)), torch.tensor(sizes)
    state = stack.norm_state.clone()
    images = network.images(source, drawn, torch.zeros_like(drawn), valid_n, rows)
    scale_n = torch.tensor([1.0, 2.0, 4.0])
    losses = network.gradients(images, source.labels[drawn], valid_n, rows, 0.1, scale_n)
    stacked, moved = stack.gradients.clone(), stack.norm_state.clone()
    stack.gradients.zero_()
    stack.norm_state.copy_(state)
    for n, size in enumerate(sizes):
        if size:
            rows_n = drawn[n, :size]
            batch = (source.images[rows_n] * source.factor + source.offset).permute(0, 3, 1, 2)
            expected = by_autograd(replicas[n], batch, source.labels[rows_n])
            assert float(losses[n]) == pytest.approx(expected, abs=1e-9)
            torch.testing.assert_close(stacked[n] / scale_n[n], stack.gradients[n], atol=1e-9, rtol=1e-7)
    torch.testing.assert_close(moved, stack.norm_state)


def test_scores_are_those_of_the_modules_in_eval_mode() -> None:
    replicas, stack = stack_of(split_model(), N)
    stack.norm_state.add_(torch.rand_like(stack.norm_state))
    network = Network(read([s.module for s in replicas[0]], (3, 16, 16)), stack.offsets(), plain, tf32=False)
    source, drawn, valid_n = samples(), torch.randint(0, 40, (N, B)), torch.full((N,), B)
    rows = rows_of(stack)
    scores = network.scores(network.images(source, drawn, torch.zeros_like(drawn), valid_n, rows), rows, valid_n)
    for n, segments in enumerate(replicas):
        batch = (source.images[drawn[n]] * source.factor + source.offset).permute(0, 3, 1, 2)
        with torch.no_grad():
            expected = segments[1].module.eval()(segments[0].module.eval()(batch))
        torch.testing.assert_close(scores[n], expected)
