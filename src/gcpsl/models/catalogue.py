"""The names of the zoo: where each model is made and where it can be cut by stage. Imports no torch."""

from __future__ import annotations

from dataclasses import dataclass

DEFAULT_GROUPS = 32


@dataclass(frozen=True)
class Entry:
    """One model of the zoo. `factory` is an import path; `cut` is the default among its stage `cuts`."""

    factory: str
    cut: str
    cuts: tuple[str, ...]
    residual: bool = False
    groups: int = DEFAULT_GROUPS


_STAGES = ("layer1", "layer2", "layer3", "layer4", "fc")

ZOO = {
    "small_cnn": Entry("gcpsl.models.zoo.small_cnn:small_cnn", "stage3", ("stage2", "stage3", "fc"), groups=4),
    "mlp": Entry("gcpsl.models.zoo.mlp:mlp", "hidden2", ("hidden2", "hidden3", "fc")),
    "vit": Entry("gcpsl.models.zoo.vit:vit", "blocks.1", (*(f"blocks.{i}" for i in range(4)), "norm", "fc")),
    "resnet18": Entry("gcpsl.models.zoo.resnet:resnet18", "layer2", _STAGES, residual=True),
    "resnet34": Entry("gcpsl.models.zoo.resnet:resnet34", "layer2", _STAGES, residual=True),
    "resnet50": Entry("gcpsl.models.zoo.resnet:resnet50", "layer2", _STAGES, residual=True),
}
