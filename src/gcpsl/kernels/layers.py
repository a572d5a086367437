"""A split model read as the few steps that the stacked kernels know, or why it can't be.

The known steps are a convolution without bias, a BatchNorm or GroupNorm after it with the addition and ReLU that
follow, and a last mean over the image with a linear layer. Values are numbered; 0 is the batch of images.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import fx, nn

from gcpsl.kernels.shapes import ConvShape

CHANNELS_MIN = 16
IMAGES = 0


class NotStackable(Exception):  # noqa: N818 - it is a finding, and no error
    """Why a model's replicas can't be computed together."""


@dataclass(frozen=True)
class Convolution:
    module: nn.Conv2d
    source: int
    target: int
    shape: ConvShape


@dataclass(frozen=True)
class Normalisation:
    """target = relu(norm(source) + skip), without what is absent."""

    module: nn.BatchNorm2d | nn.GroupNorm
    source: int
    target: int
    pixels: int
    skip: int | None = None
    relu: bool = False


@dataclass(frozen=True)
class Head:
    """The class scores: a linear layer of each image's mean."""

    module: nn.Linear
    source: int


Step = Convolution | Normalisation | Head


def read(segments: Sequence[nn.Module], image_shape: tuple[int, int, int]) -> list[Step]:
    """The steps of all segments, one after another, on images of (channels, rows, columns). Raises NotStackable."""
    reader = _Reader(image_shape)
    for segment in segments:
        try:
            graph = fx.Tracer().trace(segment)
        except Exception as error:
            raise NotStackable(f"its forward can't be followed ({error})") from error
        reader.read(segment, graph)
    reader.check()
    return reader.steps


def first_of(segment: nn.Module, steps: Sequence[Step]) -> int:
    """Which step is the first of this segment's."""
    own = set(map(id, segment.modules()))
    return next(i for i, step in enumerate(steps) if id(step.module) in own)


@dataclass(frozen=True)
class _Value:
    """What a node of the graph stands for: `kind` is image, conv, norm (not yet computed), mean or scores."""

    kind: str
    number: int
    channels: int
    height: int
    width: int
    norm: nn.BatchNorm2d | nn.GroupNorm | None = None


class _Reader:
    def __init__(self, image_shape: tuple[int, int, int]) -> None:
        self.steps: list[Step] = []
        self._current = _Value("image", IMAGES, *image_shape)
        self._numbers = IMAGES

    def read(self, segment: nn.Module, graph: fx.Graph) -> None:
        """Follow one segment from the value that the one before it gave."""
        self._values: dict[fx.Node, _Value] = {}
        for node in graph.nodes:
            if node.op == "placeholder":
                self._values[node] = self._current
            elif node.op == "output":
                self._current = self._values[node.args[0]]
                if self._current.kind == "norm":
                    self._current = self._computed(self._current)
            elif node.op != "get_attr" or node.users:
                self._values[node] = self._follow(segment, node)

    def check(self) -> None:
        """The backward pass goes through a value's readers in reverse; only convolutions add to a gradient there."""
        if self._current.kind != "scores":
            raise NotStackable("it doesn't end in a mean over the image and a linear layer")
        producers = {step.target: step for step in self.steps if not isinstance(step, Head)}
        readers: dict[int, list[Step]] = {}
        for step in self.steps:
            for number in (step.source, getattr(step, "skip", None)):
                if number is not None:
                    readers.setdefault(number, []).append(step)
        if readers[IMAGES] != self.steps[:1] or not isinstance(self.steps[0], Convolution):
            raise NotStackable("it doesn't begin with one convolution")
        for number, (*others, last) in readers.items():
            producer = producers.get(number)
            alone = isinstance(producer, Convolution) or (isinstance(producer, Normalisation) and producer.relu)
            skipped = isinstance(last, Normalisation) and last.skip == number
            adding = all(isinstance(other, Convolution) and not _sparse(other) for other in others)
            if not adding or (others and isinstance(producer, Convolution)) or (not others and alone and skipped):
                raise NotStackable("values are added up in a way that residual blocks don't")
            if not others and isinstance(producer, Normalisation) and _sparse(last):
                raise NotStackable("a 1x1 convolution of stride 2 is not beside another convolution")

    def _follow(self, segment: nn.Module, node: fx.Node) -> _Value:
        inputs = [self._values[n] for n in node.all_input_nodes]
        if node.op == "call_module":
            module = segment.get_submodule(str(node.target))
            return (
                self._relu(node, inputs[0])
                if type(module) is nn.ReLU
                else self._module(module, str(node.target), inputs[0])
            )
        if node.target in (F.relu, torch.relu, "relu"):
            return self._relu(node, inputs[0])
        if node.target in (operator.add, torch.add, "add") and len(node.args) == len(inputs) == 2:
            return self._sum(*inputs)
        if node.target in (torch.flatten, "flatten") and tuple(node.args[1:]) == (1,) and not node.kwargs:
            return self._flat(inputs[0])
        name = getattr(node.target, "__name__", node.target)
        raise NotStackable(f"it calls {name}(), for which there is no stacked kernel")

    def _module(self, module: nn.Module, name: str, value: _Value) -> _Value:
        kind = type(module)
        if module._forward_hooks or module._forward_pre_hooks or module._backward_hooks:
            raise NotStackable(f"'{name}' has hooks")
        if kind is nn.Identity or (kind is nn.Dropout and getattr(module, "p", 1) == 0):
            return value
        if isinstance(module, nn.Conv2d) and kind is nn.Conv2d:
            return self._conv(module, name, value)
        if isinstance(module, nn.BatchNorm2d | nn.GroupNorm) and kind in (nn.BatchNorm2d, nn.GroupNorm):
            return self._norm(module, name, value)
        if kind is nn.AdaptiveAvgPool2d and getattr(module, "output_size", 0) in (1, (1, 1)):
            return replace(self._computed(value), kind="mean", height=1, width=1)
        if kind is nn.Flatten and (getattr(module, "start_dim", 0), getattr(module, "end_dim", 0)) == (1, -1):
            return self._flat(value)
        if isinstance(module, nn.Linear) and kind is nn.Linear and value.kind == "mean" and module.bias is not None:
            self.steps.append(Head(module, value.number))
            return replace(value, kind="scores")
        raise NotStackable(f"'{name}' ({kind.__name__}) has no stacked kernel")

    def _conv(self, module: nn.Conv2d, name: str, value: _Value) -> _Value:
        value = self._computed(value)
        side, stride = module.kernel_size[0], module.stride[0]
        plain = (module.kernel_size, module.stride, module.padding, module.dilation, module.groups)
        expected = ((side, side), (stride, stride), (side // 2, side // 2), (1, 1), 1)
        if plain != expected or module.bias is not None or module.padding_mode != "zeros":
            raise NotStackable(f"'{name}' is no plain convolution without bias")
        first = value.number == IMAGES
        if stride not in (1, 2) or side not in (1, 3) or (stride == 2 and (value.height % 2 or value.width % 2)):
            raise NotStackable(f"'{name}' has a side, stride or image size without a stacked kernel")
        sizes = (module.out_channels,) if first else (module.in_channels, module.out_channels)
        if any(size < CHANNELS_MIN or size & (size - 1) for size in sizes):
            raise NotStackable(f"'{name}' has channels that are no power of two from {CHANNELS_MIN} on")
        shape = ConvShape(value.height, value.width, module.in_channels, module.out_channels, side, stride)
        target = self._new()
        self.steps.append(Convolution(module, value.number, target, shape))
        return _Value("conv", target, shape.outputs, shape.out_height, shape.out_width)

    def _norm(self, module: nn.BatchNorm2d | nn.GroupNorm, name: str, value: _Value) -> _Value:
        if value.kind != "conv":
            raise NotStackable(f"'{name}' doesn't follow a convolution")
        if not module.affine:
            raise NotStackable(f"'{name}' has no weight and bias")
        if isinstance(module, nn.BatchNorm2d) and (not module.track_running_stats or module.momentum is None):
            raise NotStackable(f"'{name}' keeps no exponential running statistics")
        if isinstance(module, nn.GroupNorm) and value.height * value.width % CHANNELS_MIN:
            raise NotStackable(f"'{name}' normalises images whose pixels are no multiple of {CHANNELS_MIN}")
        return replace(value, kind="norm", norm=module)

    def _relu(self, node: fx.Node, value: _Value) -> _Value:
        if value.kind == "norm":
            return self._computed(value, relu=True)
        last = self.steps[-1] if self.steps else None
        if not isinstance(last, Normalisation) or last.target != value.number or last.relu:
            raise NotStackable("a ReLU doesn't follow a norm or a sum")
        if len(node.all_input_nodes[0].users) > 1:
            raise NotStackable("what a ReLU reads is read elsewhere too")
        self.steps[-1] = replace(last, relu=True)
        return value

    def _sum(self, one: _Value, other: _Value) -> _Value:
        if one.kind != "norm":
            one, other = other, one
        if one.kind != "norm":
            raise NotStackable("neither side of a sum is a norm's output")
        return self._computed(one, skip=self._computed(other).number)

    def _flat(self, value: _Value) -> _Value:
        if value.kind != "mean":
            raise NotStackable("it flattens images")
        return value

    def _computed(self, value: _Value, skip: int | None = None, *, relu: bool = False) -> _Value:
        """The value as one that can be read: a norm is computed only now that it is known what follows it."""
        if value.kind == "image":
            return value
        if value.kind != "norm":
            raise NotStackable(f"the {value.kind} of a convolution is used without a norm")
        assert value.norm is not None
        pixels = value.height * value.width
        target = self._new()
        self.steps.append(Normalisation(value.norm, value.number, target, pixels, skip, relu))
        return replace(value, kind="image", number=target, norm=None)

    def _new(self) -> int:
        self._numbers += 1
        return self._numbers


def _sparse(step: Step) -> bool:
    """Whether a step's gradient reaches only every second row and column."""
    return isinstance(step, Convolution) and (step.shape.side, step.shape.stride) == (1, 2)
