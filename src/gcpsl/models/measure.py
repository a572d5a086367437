"""Measures a split model's sizes by building it and running two small batches; writes `sizes.json`."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import astuple
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase

from gcpsl.config import ModelConfig
from gcpsl.models.assembly import SplitModel, build
from gcpsl.models.catalogue import ZOO
from gcpsl.models.sizes import Key, SegmentSizes

SHAPES = ((1, 8, 8), (1, 28, 28), (3, 32, 32))
CLASSES = (10, 100)
FLOAT_BYTES = 4


def measure_sizes(config: ModelConfig, input_shape: tuple[int, int, int], classes: int) -> SegmentSizes:
    """The sizes of the split model, in float32 on the CPU."""
    # one group suits every norm; more would add only a mean and a deviation each to what is saved
    model = build(config.model_copy(update={"groups": 1}), input_shape, classes, seed=0)
    few, many = (_saved_bytes(model, torch.zeros(samples, *input_shape)) for samples in (2, 4))
    return sizes_of(model, saved_bytes_per_sample=(many - few) // 2)


def sizes_of(model: SplitModel, saved_bytes_per_sample: int = 0) -> SegmentSizes:
    """The sizes of a model that is there; what autograd keeps has to be measured apart."""
    return SegmentSizes(
        client_parameters=_parameters(model.client),
        server_parameters=_parameters(model.server),
        norm_state_bytes=_norm_state_bytes(model.server),
        activation_bytes=math.prod(model.activation_shape) * FLOAT_BYTES,
        saved_bytes_per_sample=saved_bytes_per_sample,
    )


def _parameters(segment: nn.Module) -> int:
    return sum(parameter.numel() for parameter in segment.parameters())


def _norm_state_bytes(segment: nn.Module) -> int:
    norms = (module for module in segment.modules() if isinstance(module, _NormBase))
    return sum(buffer.nbytes for norm in norms for buffer in norm.buffers())


def _saved_bytes(model: SplitModel, images: Tensor) -> int:
    """The storages that one training forward of both segments leaves for its backward, each counted once."""
    parameters = {p.untyped_storage().data_ptr() for _, p in model.named_parameters()}
    saved: dict[int, Tensor] = {}  # holds the tensors, so that no address is used twice

    def keep(tensor: Tensor) -> Tensor:
        saved[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        sent = model.client(images)
        model.server(sent.detach().requires_grad_())
    return sum(t.untyped_storage().nbytes() for pointer, t in saved.items() if pointer not in parameters)


def keys() -> Iterator[Key]:
    """Every row that the table has."""
    for name, entry in ZOO.items():
        for shape in SHAPES:
            for skips in (True, False) if entry.residual else (True,):
                for cut in entry.cuts:
                    for classes in CLASSES:
                        yield Key(name, cut, skips, shape, classes)


def measure(key: Key) -> SegmentSizes:
    """What the table's row for this key must say."""
    config = ModelConfig(name=key.name, cut=key.cut, groups=1, client_skips=key.client_skips)
    return measure_sizes(config, key.input_shape, key.classes)


def write_table() -> None:
    rows = [json.dumps([*astuple(key), *astuple(measure(key))], separators=(",", ":")) for key in keys()]
    text = "[\n" + ",\n".join(rows) + "\n]\n"
    (Path(__file__).parent / "sizes.json").write_text(text, encoding="utf-8")
