"""The table of sizes that the planner reads without torch."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from torch import nn

import gcpsl.models
from gcpsl.config import ModelConfig
from gcpsl.models import SegmentSizes, segment_sizes
from gcpsl.models.catalogue import ZOO
from gcpsl.models.measure import keys, measure, measure_sizes
from gcpsl.models.sizes import Key, table

REGENERATE = "the table is stale: run python -m gcpsl.models.sizes"


def sizes(
    name: str, cut: str | None = None, groups: int = 32, shape: tuple[int, int, int] = (3, 32, 32)
) -> SegmentSizes:
    return segment_sizes(ModelConfig(name=name, cut=cut, groups=groups), shape, 10)


def two_layers(input_shape: tuple[int, int, int], classes: int) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 20), nn.BatchNorm1d(20), nn.Sigmoid(), nn.Linear(20, classes))


def test_the_table_has_every_zoo_model_cut_shape_and_nothing_else() -> None:
    assert set(table()) == set(keys()), REGENERATE
    assert len(table()) == sum(len(e.cuts) * (2 if e.residual else 1) for e in ZOO.values()) * 3 * 2


QUICK = [
    key
    for key in keys()
    if key.classes == 10 and key.input_shape == (1, 8, 8)
    if key.name not in ("resnet34", "resnet50") or key.cut == ZOO[key.name].cut
]
FULL = [Key(name, entry.cut, True, (3, 32, 32), 100) for name, entry in ZOO.items() if name != "resnet50"]


@pytest.mark.parametrize("key", [*QUICK, *FULL], ids=lambda key: f"{key.name}-{key.cut}-{key.client_skips}")
def test_the_table_says_what_is_measured(key: Key) -> None:
    assert table()[key] == measure(key), REGENERATE


def test_the_papers_payload_follows_from_the_table() -> None:
    before_layer2, after_layer2 = sizes("resnet18", "layer2"), sizes("resnet18", "layer3")
    assert before_layer2.client_parameters * 4 == 599_296
    assert before_layer2.activation_bytes == 262_144
    assert after_layer2.activation_bytes == 128 * 16 * 16 * 4
    assert before_layer2.client_parameters + before_layer2.server_parameters == 11_173_962
    assert sizes("resnet18") == before_layer2, "the default cut"


def test_the_groups_do_not_matter() -> None:
    assert sizes("resnet18", groups=3) == sizes("resnet18")


def test_norm_state_is_two_floats_per_channel_and_a_counter_per_norm() -> None:
    # layer2..layer4 of ResNet-18: five norms each (four, and one on the first block's shortcut)
    channels, norms = 5 * (128 + 256 + 512), 15
    assert sizes("resnet18", "layer2").norm_state_bytes == channels * 2 * 4 + norms * 8


def test_saved_bytes_of_an_mlp_are_its_layers_inputs() -> None:
    assert sizes("mlp", shape=(1, 8, 8)).saved_bytes_per_sample == (64 + 3 * 256) * 4


def test_what_is_not_in_the_table_is_measured() -> None:
    config = ModelConfig(name=f"{__name__}:two_layers", cut="4", groups=4)
    expected = SegmentSizes(
        client_parameters=64 * 20 + 20 + 40,
        server_parameters=20 * 10 + 10,
        norm_state_bytes=0,
        activation_bytes=80,
        # the input, the norm's input with its group's mean and deviation, and the sigmoid's output, once
        saved_bytes_per_sample=(64 + 20 + 2 + 20) * 4,
    )
    assert segment_sizes(config, (1, 8, 8), 10) == expected
    assert segment_sizes(ModelConfig(name="mlp", groups=32), (1, 6, 6), 10).client_parameters == 36 * 256 + 256


def test_measuring_leaves_the_random_state_alone() -> None:
    before = torch.random.get_rng_state()
    measure_sizes(ModelConfig(name="small_cnn", groups=32), (1, 8, 8), 10)
    assert torch.equal(torch.random.get_rng_state(), before)


def test_looking_up_sizes_imports_no_torch() -> None:
    code = (
        "import sys, gcpsl.models; from gcpsl.config import ModelConfig\n"
        "gcpsl.models.segment_sizes(ModelConfig(name='resnet18'), (3, 32, 32), 10)\n"
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_package_names_what_it_has_not() -> None:
    with pytest.raises(AttributeError, match=r"'gcpsl\.models' has no attribute 'splitt'"):
        _ = gcpsl.models.splitt
    assert all(getattr(gcpsl.models, name) for name in gcpsl.models.__all__)
