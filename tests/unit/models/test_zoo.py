"""The zoo: its sizes, its cuts, and that each model can learn."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn.utils import convert_conv2d_weight_memory_format

from gcpsl.models import cuts, split
from gcpsl.models.catalogue import ZOO
from gcpsl.models.zoo.resnet import Residual, drop_skips, resnet18
from gcpsl.models.zoo.vit import patch_size
from gcpsl.plugins import resolve

SHAPES = [(1, 8, 8), (1, 28, 28), (3, 32, 32)]
STAGE_CUTS = [(name, cut) for name, entry in ZOO.items() for cut in entry.cuts]


def make(name: str, shape: tuple[int, int, int] = (1, 8, 8), classes: int = 10) -> nn.Module:
    model = resolve(ZOO[name].factory, "model.name")(shape, classes)
    assert isinstance(model, nn.Module)
    return model


def count(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


def test_resnet18_is_the_papers_size_part_by_part() -> None:
    model = resnet18((3, 32, 32), 10)
    parts = {name: count(child) for name, child in model.named_children()}
    assert parts["conv1"] + parts["bn1"] == 1_856
    assert [parts[f"layer{i}"] for i in (1, 2, 3, 4)] == [147_968, 525_568, 2_099_712, 8_393_728]
    assert count(model) == 11_173_962


@pytest.mark.parametrize(
    ("name", "parameters"),
    # torchvision's ResNets with fc for 10 classes, less the 7x7 stem's 9,408 weights, plus the 3x3 stem's 1,728
    [("resnet34", 21_289_802 - 9_408 + 1_728), ("resnet50", 23_528_522 - 9_408 + 1_728)],
)
def test_deeper_resnets_have_torchvisions_size_but_for_the_stem(name: str, parameters: int) -> None:
    assert count(make(name, (3, 32, 32))) == parameters


@pytest.mark.parametrize("name", ZOO)
@pytest.mark.parametrize("shape", SHAPES)
def test_every_model_scores_every_class_on_every_built_in_shape(name: str, shape: tuple[int, int, int]) -> None:
    model = make(name, shape, classes=7).eval()
    scores = model(torch.randn(2, *shape))
    assert scores.shape == (2, 7)
    assert scores.isfinite().all()


@pytest.mark.parametrize("name", ZOO)
def test_the_default_and_the_stage_cuts_are_valid(name: str) -> None:
    entry = ZOO[name]
    assert entry.cut in entry.cuts
    assert set(entry.cuts) <= set(cuts(make(name)))


def train_step(parts: list[nn.Module], images: Tensor, labels: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    sent = parts[0](images)
    received = sent.detach().requires_grad_()
    scores = parts[1](received)
    F.cross_entropy(scores, labels).backward()
    sent.backward(received.grad)
    named = (pair for part in parts for pair in part.named_parameters())
    return scores.detach(), {name: p.grad for name, p in named if p.grad is not None}


@pytest.mark.parametrize(
    ("name", "cut", "memory_format"),
    [
        *((name, cut, torch.contiguous_format) for name, cut in STAGE_CUTS),
        *((name, ZOO[name].cut, torch.channels_last) for name in ZOO),
    ],
)
def test_splitting_at_any_stage_changes_no_bit_of_a_training_step(
    name: str, cut: str, memory_format: torch.memory_format
) -> None:
    torch.manual_seed(0)
    model = convert_conv2d_weight_memory_format(make(name), memory_format)
    images = torch.randn(6, 1, 8, 8).to(memory_format=memory_format)
    labels = torch.randint(10, (6,))
    whole = copy.deepcopy(model)
    scores = whole(images)
    F.cross_entropy(scores, labels).backward()

    segments = split(model, cut, images)
    split_scores, gradients = train_step([segments.client, segments.server], images, labels)

    assert torch.equal(split_scores, scores.detach())
    assert gradients.keys() == dict(whole.named_parameters()).keys()
    for parameter_name, p in whole.named_parameters():
        assert p.grad is not None
        assert torch.equal(gradients[parameter_name], p.grad), parameter_name
    state = {**segments.client.state_dict(), **segments.server.state_dict()}
    assert state.keys() == whole.state_dict().keys()
    assert all(torch.equal(state[key], value) for key, value in whole.state_dict().items())


@pytest.mark.parametrize("name", ["resnet18", "resnet50"])
def test_a_skipless_segment_is_the_chain_of_its_blocks_layers(name: str) -> None:
    client = split(make(name), "layer3").client.eval()
    blocks = [m for m in client.modules() if isinstance(m, Residual)]
    images = torch.randn(2, 1, 8, 8)
    expected = F.relu(client.get_submodule("bn1")(client.get_submodule("conv1")(images)))
    for block in blocks:
        children = dict(block.named_children())
        for i in "123"[: 2 if name == "resnet18" else 3]:
            expected = F.relu(children[f"bn{i}"](children[f"conv{i}"](expected)))
    names = {n for n, _ in client.named_parameters() if "downsample" not in n}

    drop_skips(client)

    assert torch.equal(client(images), expected)
    assert {n for n, _ in client.named_parameters()} == names
    assert not any(isinstance(m, Residual) for m in client.modules())


def test_the_vits_patches_tile_the_image() -> None:
    assert [patch_size(shape) for shape in SHAPES] == [2, 4, 4]
    assert patch_size((3, 64, 64)) == 8
    assert patch_size((1, 7, 7)) == 1
    assert patch_size((1, 12, 16)) == 2


@pytest.mark.parametrize(("name", "lr", "epochs"), [("small_cnn", 0.05, 3), ("mlp", 0.05, 5), ("vit", 0.05, 3)])
def test_the_quick_models_learn_the_digits(name: str, lr: float, epochs: int) -> None:
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1).sub(4.9).div(6.0)
    labels = torch.tensor(digits.target)
    torch.manual_seed(0)
    order = torch.randperm(len(labels))
    train, test = order[:1400], order[1400:]
    model = make(name)
    optimizer = torch.optim.SGD(model.parameters(), lr, momentum=0.9, nesterov=True)
    for _ in range(epochs):
        for batch in train[torch.randperm(1400)].split(32):
            optimizer.zero_grad()
            F.cross_entropy(model(images[batch]), labels[batch]).backward()
            optimizer.step()
    accuracy = (model.eval()(images[test]).argmax(1) == labels[test]).double().mean().item()
    assert accuracy > (0.85 if name == "vit" else 0.95)
