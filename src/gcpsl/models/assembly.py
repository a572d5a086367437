"""From settings to the two segments that train: make the model, cut it, give the client norms it can have."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn

from gcpsl.config import ModelConfig
from gcpsl.errors import ConfigError, GcpslError, nearest
from gcpsl.models.catalogue import DEFAULT_GROUPS, ZOO, Entry
from gcpsl.models.norms import refuse_single_values, to_group_norm
from gcpsl.models.splitting import cuts, evaluating, split
from gcpsl.models.zoo.resnet import drop_skips
from gcpsl.plugins import resolve
from gcpsl.seeds import Purpose, integer_seed

Factory = Callable[[tuple[int, int, int], int], nn.Module]
TRIAL_SAMPLES = 3


@dataclass(frozen=True)
class SplitModel:
    """A model in two segments, in training mode on the CPU, whose parameters keep the whole model's names."""

    client: nn.Module
    server: nn.Module
    cut: str
    activation_shape: tuple[int, ...]

    def whole(self) -> nn.Module:
        """One module that runs the client, then the server, on the same parameters."""
        return nn.Sequential(self.client, self.server)

    def named_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        yield from self.client.named_parameters()
        yield from self.server.named_parameters()

    def state_dict(self) -> dict[str, Tensor]:
        """Parameters and buffers of both segments under the whole model's names."""
        return {**self.client.state_dict(), **self.server.state_dict()}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Takes what `state_dict` gave; every name must be there and nothing else."""
        own = self.client.state_dict().keys()
        self.client.load_state_dict({name: value for name, value in state.items() if name in own})
        self.server.load_state_dict({name: value for name, value in state.items() if name not in own})

    def describe(self) -> str:
        """Two lines: each segment's parameters, and what crosses between them."""
        client, server = (sum(p.numel() for p in side.parameters()) for side in (self.client, self.server))
        shape, values = "x".join(map(str, self.activation_shape)), math.prod(self.activation_shape)
        return (
            f"client: {client:,} parameters, sends {shape} = {values:,} values per sample\n"
            f"server: {server:,} parameters, from '{self.cut}' on"
        )


def build(
    config: ModelConfig,
    input_shape: tuple[int, int, int],
    classes: int,
    seed: int,
    factory: Factory | None = None,
) -> SplitModel:
    """The split model that the settings ask for, its whole made by `factory`, if given, in place of `model.name`.

    Equal arguments give equal parameters. Leaves the global random state as it was. Raises ConfigError, or
    SplitError where the cut is impossible.
    """
    name = getattr(factory, "__name__", str(factory)) if factory else config.name
    entry = None if factory else _entry(name)
    make = factory or cast(Factory, resolve(entry.factory if entry else name, "model.name"))
    example = torch.zeros(TRIAL_SAMPLES, *input_shape)
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.default_generator.manual_seed(integer_seed(seed, Purpose.MODEL_INIT))
        model = _made(name, make, input_shape, classes)
        _check(name, model, example, classes)
        segments = split(model.train(), _cut(config, entry, model, example), example)
        if not config.client_skips:
            _drop_skips(entry, segments.client)
        to_group_norm(segments.client, config.groups or (entry.groups if entry else DEFAULT_GROUPS))
        with evaluating(segments.client):
            refuse_single_values(segments.client, example)
            activation_shape = tuple(segments.client(example).shape[1:])
    return SplitModel(segments.client, segments.server, _cut(config, entry, model, example), activation_shape)


def _entry(name: str) -> Entry | None:
    """The zoo's entry, or None for an import path."""
    if name not in ZOO and ":" not in name:
        raise ConfigError(
            f"model.name = '{name}' is neither in the zoo nor a package.module:function: {nearest(name, ZOO)}"
        )
    return ZOO.get(name)


def _made(name: str, make: Factory, input_shape: tuple[int, int, int], classes: int) -> nn.Module:
    try:
        return make(input_shape, classes)
    except GcpslError:
        raise
    except Exception as error:
        raise ConfigError(
            f"model.name = '{name}' failed when called as function({input_shape}, {classes}): "
            f"{type(error).__name__}: {error}"
        ) from error


def _check(name: str, model: nn.Module, example: Tensor, classes: int) -> None:
    """One forward of the whole model, so that a misfit is reported as what it is."""
    if not isinstance(model, nn.Module):
        raise ConfigError(f"model.name = '{name}' returned a {type(model).__name__}; it must return a torch.nn.Module")
    shape = tuple(example.shape[1:])
    try:
        with evaluating(model):
            output = model(example)
    except Exception as error:
        raise ConfigError(
            f"model.name = '{name}' can't process images of shape {shape}: {type(error).__name__}: {error}"
        ) from error
    if not isinstance(output, Tensor) or output.shape != (len(example), classes):
        got = tuple(output.shape) if isinstance(output, Tensor) else type(output).__name__
        raise ConfigError(
            f"model.name = '{name}' gives {got} for {len(example)} images of shape {shape}; "
            f"it must give one tensor of ({len(example)}, {classes}), a score for each class"
        )


def _cut(config: ModelConfig, entry: Entry | None, model: nn.Module, example: Tensor) -> str:
    if config.cut is not None:
        return config.cut
    if entry is None:
        raise ConfigError(
            "model.cut must be set for a model of your own, which has no default; "
            f"choose one of: {', '.join(cuts(model, example))}"
        )
    return entry.cut


def _drop_skips(entry: Entry | None, client: nn.Module) -> None:
    if entry is None or not entry.residual:
        residual = ", ".join(name for name, other in ZOO.items() if other.residual)
        raise ConfigError(
            f"model.client_skips = false flattens the residual blocks of {residual}, and this model is none "
            "of these: set it to true"
        )
    drop_skips(client)
