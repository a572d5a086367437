"""From settings to a split model."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from gcpsl.config import ModelConfig
from gcpsl.errors import ConfigError, SplitError
from gcpsl.models import SplitModel, build

SHAPE = (1, 8, 8)


def config(**values: Any) -> ModelConfig:
    return ModelConfig.model_validate(values)


def pooled(input_shape: tuple[int, int, int], classes: int) -> nn.Module:
    """A user's own model."""
    layers = [nn.Conv2d(input_shape[0], 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.LazyLinear(classes)]
    return nn.Sequential(*layers)


def no_module(input_shape: tuple[int, int, int], classes: int) -> str:
    return f"{input_shape} {classes}"


def wrong_scores(input_shape: tuple[int, int, int], classes: int) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, classes + 1))


def wrong_input(input_shape: tuple[int, int, int], classes: int) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(63, classes))


def normed_features(input_shape: tuple[int, int, int], classes: int) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.BatchNorm1d(16), nn.Linear(16, classes))


def test_the_paper_s_cut_has_the_papers_sizes() -> None:
    model = build(config(name="resnet18", cut="layer2"), (3, 32, 32), 10, seed=0)
    assert model.activation_shape == (64, 32, 32)
    assert sum(p.numel() for p in model.client.parameters()) * 4 == 599_296
    assert model.describe() == (
        "client: 149,824 parameters, sends 64x32x32 = 65,536 values per sample\n"
        "server: 11,024,138 parameters, from 'layer2' on"
    )
    assert build(config(name="resnet18", cut="layer3"), (3, 32, 32), 10, 0).activation_shape == (128, 16, 16)


def test_the_client_has_group_norms_and_the_server_batch_norms() -> None:
    model = build(config(name="resnet18", cut="layer2.1", groups=48), SHAPE, 10, seed=0)
    assert not any(isinstance(m, nn.BatchNorm2d) for m in model.client.modules())
    assert not list(model.client.buffers())
    assert {m.num_groups for m in model.client.modules() if isinstance(m, nn.GroupNorm)} == {32}
    assert not any(isinstance(m, nn.GroupNorm) for m in model.server.modules())
    assert sum(isinstance(m, nn.BatchNorm2d) for m in model.server.modules()) == 12
    assert all(m.training for side in (model.client, model.server) for m in side.modules())


def test_the_same_seed_gives_the_same_parameters_and_another_seed_others() -> None:
    first, second, third = (build(ModelConfig(), SHAPE, 10, seed) for seed in (1, 1, 2))
    torch.manual_seed(7)
    assert all(
        torch.equal(a, b) for a, b in zip(first.state_dict().values(), second.state_dict().values(), strict=True)
    )
    assert not torch.equal(first.state_dict()["fc.weight"], third.state_dict()["fc.weight"])


def test_the_cut_does_not_change_the_initial_parameters() -> None:
    one, other = (build(config(cut=cut), SHAPE, 10, seed=3).state_dict() for cut in ("stage2", "fc"))
    assert all(torch.equal(one[name], other[name]) for name in one.keys() & other.keys())


def test_building_leaves_the_global_random_state_alone() -> None:
    before = torch.random.get_rng_state()
    build(ModelConfig(), SHAPE, 10, seed=3)
    assert torch.equal(torch.random.get_rng_state(), before)


def test_a_state_moves_between_models_under_the_whole_models_names() -> None:
    source, target = (build(ModelConfig(), SHAPE, 10, seed) for seed in (1, 2))
    assert list(dict(source.named_parameters())) == [
        *("stage1.0.weight", "stage1.1.weight", "stage1.1.bias"),
        *("stage2.0.weight", "stage2.1.weight", "stage2.1.bias"),
        *("stage3.0.weight", "stage3.1.weight", "stage3.1.bias"),
        *("fc.weight", "fc.bias"),
    ]
    images = torch.randn(5, *SHAPE)
    source.whole().train()(images)  # moves the running statistics
    target.load_state_dict(source.state_dict())
    assert torch.equal(target.whole().eval()(images), source.whole().eval()(images))
    for missing in ("stage1.0.weight", "fc.bias"):
        state = source.state_dict()
        del state[missing]
        with pytest.raises(RuntimeError, match=missing):
            target.load_state_dict(state)
    with pytest.raises(RuntimeError, match="surplus"):
        target.load_state_dict({**source.state_dict(), "surplus": torch.zeros(1)})


def flattened(segment: nn.Module) -> Tensor:
    """The segment's parameters as views of one buffer."""
    parameters = list(segment.parameters())
    flat = torch.cat(
        [p.detach().permute(0, 2, 3, 1).flatten() if p.dim() == 4 else p.detach().flatten() for p in parameters]
    )
    start = 0
    for p in parameters:
        piece = flat[start : start + p.numel()]
        b = p.shape
        p.data = piece.view(b[0], b[2], b[3], b[1]).permute(0, 3, 1, 2) if p.dim() == 4 else piece.view(b)
        start += p.numel()
    return flat


def step(model: SplitModel, images: Tensor) -> list[Tensor]:
    sent = model.client(images)
    received = sent.detach().requires_grad_()
    model.server(received).square().sum().backward()
    sent.backward(received.grad)
    return [p.grad for _, p in model.named_parameters() if p.grad is not None]


@pytest.mark.parametrize("name", ["small_cnn", "mlp", "vit", "resnet18"])
def test_segments_train_channels_last_on_views_of_one_flat_buffer(name: str) -> None:
    plain, flat = (build(config(name=name), SHAPE, 10, seed=1) for _ in range(2))
    images = torch.randn(4, *SHAPE)
    buffers = [flattened(side) for side in (flat.client, flat.server)]
    got = step(flat, images.to(memory_format=torch.channels_last))
    expected = step(plain, images)
    assert len(got) == len(expected) == len(list(plain.named_parameters()))
    assert all(
        torch.allclose(a, b, rtol=1e-3, atol=1e-3 * float(b.abs().max())) for a, b in zip(got, expected, strict=True)
    )
    for buffer in buffers:
        buffer.zero_()
    assert not flat.whole()(images).any()


def test_a_skipless_client_has_no_shortcuts_and_the_same_server() -> None:
    with_skips, without = (
        build(config(name="resnet18", cut="layer3", client_skips=skips), SHAPE, 10, seed=1) for skips in (True, False)
    )
    client = set(without.client.state_dict())
    assert client == {name for name in with_skips.client.state_dict() if "downsample" not in name}
    assert without.server.state_dict().keys() == with_skips.server.state_dict().keys()
    assert without.activation_shape == with_skips.activation_shape
    assert not torch.allclose(without.client(images := torch.randn(2, *SHAPE)), with_skips.client(images)), (
        "the additions are gone"
    )


def test_a_users_own_model_is_found_cut_and_given_group_norms() -> None:
    model = build(config(name=f"{__name__}:pooled", cut="3"), SHAPE, 5, seed=1)
    assert model.activation_shape == (8, 6, 6)
    assert isinstance(model.client.get_submodule("1"), nn.GroupNorm)
    assert model.whole()(torch.zeros(2, *SHAPE)).shape == (2, 5)
    again = build(config(name=f"{__name__}:pooled", cut="3"), SHAPE, 5, seed=1)
    assert torch.equal(again.state_dict()["4.weight"], model.state_dict()["4.weight"])


def test_a_factory_stands_in_for_the_name() -> None:
    given = build(config(cut="3"), SHAPE, 5, seed=1, factory=pooled).state_dict()
    named = build(config(name=f"{__name__}:pooled", cut="3"), SHAPE, 5, seed=1).state_dict()
    assert given.keys() == named.keys()
    assert all(torch.equal(given[name], named[name]) for name in named)
    with pytest.raises(ConfigError, match=r"model\.cut must be set.*choose one of: 1, 2, 3, 4"):
        build(config(), SHAPE, 5, seed=1, factory=pooled)
    with pytest.raises(ConfigError, match=r"'no_module' returned a str"):
        build(config(), SHAPE, 5, seed=1, factory=no_module)  # type: ignore[arg-type]  # the mistake under test


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"name": "resnet19"}, r"neither in the zoo.*did you mean 'resnet18'"),
        ({"name": f"{__name__}:pooled"}, r"model\.cut must be set.*choose one of: 1, 2, 3, 4"),
        ({"name": f"{__name__}:no_module", "cut": "1"}, r"returned a str.*torch\.nn\.Module"),
        ({"name": f"{__name__}:wrong_scores", "cut": "1"}, r"gives \(3, 11\).*it must give one tensor of \(3, 10\)"),
        ({"name": f"{__name__}:wrong_input", "cut": "1"}, r"can't process images of shape \(1, 8, 8\): RuntimeError"),
        ({"client_skips": False}, r"residual blocks of resnet18, resnet34, resnet50, and this model is none"),
    ],
)
def test_a_wrong_setting_is_explained(values: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        build(config(**values), SHAPE, 10, seed=0)


def test_a_cut_that_ruins_the_clients_norm_is_refused_until_groups_are_fewer() -> None:
    name = f"{__name__}:normed_features"
    with pytest.raises(SplitError, match=r"'2' would normalise groups of a single value"):
        build(config(name=name, cut="3"), SHAPE, 10, seed=0)
    assert build(config(name=name, cut="3", groups=4), SHAPE, 10, seed=0).activation_shape == (16,)


def test_a_model_function_that_fails_is_named_with_how_it_was_called() -> None:
    def broken(shape: tuple[int, int, int], classes: int) -> nn.Module:
        raise ZeroDivisionError("division by zero")

    with pytest.raises(ConfigError, match=r"'broken' failed when called as function\(.*\): ZeroDivisionError"):
        build(ModelConfig(cut="1"), (1, 8, 8), 4, 0, broken)
