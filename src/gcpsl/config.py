"""Every setting of a run: frozen models, read from TOML and `key=value` overrides, validated once.

Imports no torch. A setting's meaning is its `description`; `docs/settings.md` is generated from them.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import PydanticCustomError

from gcpsl.errors import ConfigError, nearest
from gcpsl.explain import TRUTH, explain


class Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, coerce_numbers_to_str=True)

    @model_validator(mode="before")
    @classmethod
    def _true_is_no_number(cls, values: Any) -> Any:
        for name, value in values.items() if isinstance(values, dict) else ():
            field = cls.model_fields.get(name)
            if isinstance(value, bool) and field is not None and field.annotation is not bool:
                raise PydanticCustomError(TRUTH, "must not be true or false", {"name": name})
        return values


class DataConfig(Section):
    name: str = Field(
        "digits",
        description="`digits`, `cifar10`, `cifar100`, `fashion-mnist`, `npz`, or `package.module:function` "
        "returning a `gcpsl.data.Dataset`",
    )
    root: Path | None = Field(
        None, description="folder (or .npz file) of the data; else `$GCPSL_DATA`, else `~/.cache/gcpsl/data`"
    )
    validation_fraction: float = Field(
        0.1, ge=0, lt=1, description="share of the training samples held out for validation, drawn by `seed`"
    )
    crop_padding: int = Field(0, ge=0, le=16, description="pixels of zero padding before a random crop; 0 is none")
    flip: bool = Field(False, description="random horizontal flips")


class PartitionConfig(Section):
    kind: Literal["extended_dirichlet", "dirichlet", "iid", "shards", "file"] = Field(
        "extended_dirichlet", description="how the training samples are dealt to clients"
    )
    clients: int = Field(64, ge=1, description="K, the number of clients; `file` takes it from the file")
    classes_per_client: int = Field(2, ge=1, description="classes each client holds (extended_dirichlet)")
    alpha: float = Field(3.0, gt=0, description="Dirichlet concentration (extended_dirichlet, dirichlet)")
    variant: Literal["gpsl", "li_lyu"] = Field(
        "gpsl", description="which published extended Dirichlet: even class support, or Li and Lyu's"
    )
    shards_per_client: int = Field(2, ge=1, description="label-sorted shards dealt to each client (shards)")
    file: Path | None = Field(None, description="CSV or Parquet with one row per training sample (file)")
    column: str = Field("client", description="the column that names each sample's client (file)")

    @model_validator(mode="after")
    def _file_is_named(self) -> Self:
        if self.kind == "file" and self.file is None:
            raise ValueError("partition.kind = 'file' needs partition.file, a CSV or Parquet file")
        return self


class ClusteringConfig(Section):
    rule: str = Field(
        "label_aware",
        description="`random`, `size_balanced`, `label_aware`, or your own `package.module:function`",
    )
    start: Literal["size_balanced", "greedy", "round_robin"] = Field(
        "greedy",
        description="where the label-aware search starts; fleets of up to 64 clients start everywhere, with `swaps`",
    )
    swaps: bool = Field(True, description="label-aware: try pair swaps beside single moves")
    measure: Literal["divergence", "distance"] = Field(
        "divergence", description="label-aware: Jensen-Shannon divergence (the paper's J) or its square root"
    )
    composition_weight: float = Field(
        1.0, ge=0, description="label-aware: weight of the class-composition term against sample balance"
    )
    moves_max: int | None = Field(
        None, ge=0, description="label-aware: stop after this many moves and swaps; none is no limit"
    )
    speeds: tuple[Annotated[float, Field(ge=1e-6, le=1e6)], ...] | None = Field(
        None,
        description="how fast each workload's slot is, as in `[1, 1, 1, 0.5]`, so that slow ones get less to do; only "
        "ratios count, and none is all alike. `random` can't heed them",
    )

    @model_validator(mode="after")
    def _speeds_are_of_use(self) -> Self:
        if self.speeds is not None and self.rule == "random":
            raise ValueError(
                "clustering.rule = 'random' deals clients out blindly and can't heed clustering.speeds; "
                "use 'size_balanced' or 'label_aware', or remove the speeds"
            )
        return self


class ModelConfig(Section):
    name: str = Field(
        "small_cnn",
        description="`small_cnn`, `mlp`, `vit`, `resnet18`, `resnet34`, `resnet50`, or your own "
        "`package.module:function` called as `function(input_shape, classes)`",
    )
    cut: str | None = Field(
        None,
        description="the submodule whose input is the cut: it and all after run on the server; none is the default",
    )
    groups: int | None = Field(
        None,
        ge=1,
        description="groups of the GroupNorm that replaces a client segment's BatchNorm; none is the model's default, "
        "32 for all but `small_cnn`",
    )
    client_skips: bool = Field(
        True, description="keep the client segment's skip connections; false flattens its residual blocks"
    )


class ScheduleConfig(Section):
    workloads: int = Field(4, ge=1, description="N, concurrent GPSL workloads; with draw = 'cluster' one per cluster")
    batch_size: int = Field(16, ge=1, description="B, samples that one workload draws per round")
    draw: Literal["cluster", "all"] = Field(
        "cluster",
        description="a round's batch comes from the workload's own cluster, or is its share of one over all",
    )
    synchronise: Literal["epoch", "step", "never"] | Annotated[int, Field(strict=True, ge=1)] = Field(
        "epoch",
        description="fuse replicas every epoch, every so many rounds (a number), or never; `step` averages "
        "gradients every round instead",
    )
    assignment: Literal["fixed", "redrawn"] = Field(
        "fixed", description="clients keep their cluster, or are dealt anew after each fusion"
    )
    execution: Literal["concurrent", "sequential"] = Field(
        "concurrent",
        description="workloads run side by side, or one after another in the same slots (a control)",
    )

    @model_validator(mode="after")
    def _axes_agree(self) -> Self:
        if self.assignment == "redrawn" and (self.draw != "cluster" or self.synchronise != "epoch"):
            raise ValueError(
                "schedule.assignment = 'redrawn' needs schedule.draw = 'cluster' and schedule.synchronise = 'epoch'"
            )
        if self.execution == "sequential" and self.synchronise == "step":
            raise ValueError(
                "schedule.execution = 'sequential' excludes schedule.synchronise = 'step': the workloads run one by one"
            )
        return self


class OptimizerConfig(Section):
    kind: Literal["sgd", "adamw"] = Field("sgd", description="each segment's optimizer; its state stays local")
    lr: float = Field(0.02, gt=0, description="learning rate")
    lr_schedule: Literal["constant", "cosine"] = Field(
        "constant", description="learning rate over the run, set once per epoch"
    )
    warmup_epochs: int = Field(0, ge=0, description="epochs of linear warm-up before `lr_schedule`")
    momentum: float = Field(0.9, ge=0, lt=1, description="momentum (sgd)")
    nesterov: bool = Field(True, description="Nesterov momentum (sgd)")
    weight_decay: float = Field(5e-4, ge=0, description="weight decay")

    @model_validator(mode="after")
    def _nesterov_needs_momentum(self) -> Self:
        if self.kind == "sgd" and self.nesterov and self.momentum == 0:
            raise ValueError("optimizer.nesterov = true needs optimizer.momentum above 0")
        return self


class TrainConfig(Section):
    epochs: int = Field(20, ge=1, description="epochs; in one, every sample is used exactly once")
    label_smoothing: float = Field(0.1, ge=0, lt=1, description="label smoothing of the cross-entropy")
    eval_batch_size: int = Field(1000, ge=1, description="samples per evaluation batch")


class RuntimeConfig(Section):
    kind: Literal["auto", "eager", "graphed"] = Field(
        "auto",
        description="what executes the schedule: plain PyTorch, or all workloads in captured CUDA graphs, which `auto` "
        "takes on CUDA",
    )
    client_side: Literal["shared", "replicas"] = Field(
        "shared", description="one exact stand-in per cluster, or a real segment per client (slow, the proof)"
    )
    device: Literal["auto", "cpu", "cuda"] = Field("auto", description="`auto` takes CUDA where there is one")
    slots: int | None = Field(
        None,
        ge=1,
        description="processes that share the workloads, each a rank of torch.distributed; `gcpsl train` starts them "
        "by torchrun, unless torchrun started it. None is one process",
    )
    timeout_s: float = Field(
        300.0, gt=0, description="with several ranks: how long one waits for another before it names it and gives up"
    )
    restarts: int = Field(
        3, ge=0, description="how often all ranks start again from the last barrier when one dies (`slots`)"
    )
    threads: int | None = Field(None, ge=1, description="CPU threads for tensor work; none leaves PyTorch's choice")
    precision: Literal["auto", "bf16", "fp16", "tf32", "fp32"] = Field(
        "auto",
        description="of the products in the graphed runtime; parameters and sums stay float32. `auto` is bf16 on CUDA, "
        "else fp32, in which the eager runtime always computes",
    )
    deterministic: bool = Field(
        False, description="equal bits for equal seeds on CUDA, where some of cuDNN's kernels don't give them"
    )
    channels_last: bool = Field(True, description="keep images and filters channels-last, faster on most machines")

    @model_validator(mode="after")
    def _eager_is_exact(self) -> Self:
        if self.kind == "eager" and self.precision not in ("auto", "fp32"):
            raise ValueError(
                f"runtime.precision = '{self.precision}' needs runtime.kind = 'graphed'; the eager runtime, which the "
                "others are compared with, computes in fp32"
            )
        if self.slots and self.slots > 1 and self.client_side == "replicas":
            raise ValueError("runtime.client_side = 'replicas' is a proof for one process; remove runtime.slots")
        if self.kind == "graphed" and self.client_side == "replicas":
            raise ValueError("runtime.client_side = 'replicas' needs runtime.kind = 'eager'")
        return self


class RunConfig(Section):
    root: Path = Field(Path("runs"), description="where run folders go")
    name: str | None = Field(
        None,
        pattern=r"^[^/.\-\x00-\x1f][^/\x00-\x1f]*$",
        description="the run folder's name; none makes one from the time",
    )
    checkpoint_every_s: float = Field(
        30.0,
        ge=0,
        description="write a checkpoint this long after the last, inside an epoch too (with several ranks at its end); "
        "0 is every round",
    )
    targets: tuple[Annotated[float, Field(gt=0, le=100)], ...] = Field(
        (90.0, 95.0), description="accuracies in % whose R_q and t_q are recorded"
    )
    target_split: Literal["validation", "test"] = Field(
        "validation", description="the accuracy that targets are read from; test where nothing is held out"
    )
    track: tuple[Literal["tensorboard", "mlflow"], ...] = Field((), description="also log to these")


class Config(Section):
    """One run. The defaults are the built-in quickstart."""

    seed: int = Field(0, ge=0, description="everything random follows from it")
    data: DataConfig = DataConfig()
    partition: PartitionConfig = PartitionConfig()
    clustering: ClusteringConfig = ClusteringConfig()
    model: ModelConfig = ModelConfig()
    schedule: ScheduleConfig = ScheduleConfig()
    optimizer: OptimizerConfig = OptimizerConfig()
    train: TrainConfig = TrainConfig()
    runtime: RuntimeConfig = RuntimeConfig()
    run: RunConfig = RunConfig()

    @model_validator(mode="after")
    def _sections_agree(self) -> Self:
        if self.schedule.assignment == "redrawn" and self.clustering.rule in ("size_balanced", "label_aware"):
            raise ValueError(
                "schedule.assignment = 'redrawn' needs clustering.rule = 'random': the other built-in rules "
                "would deal the same clusters every time"
            )
        workloads, clients, speeds = self.schedule.workloads, self.partition.clients, self.clustering.speeds
        if speeds is not None and self.schedule.draw == "all":
            raise ValueError(
                "clustering.speeds needs schedule.draw = 'cluster': with 'all' there are no clusters, and every "
                "workload has an equal share of each batch"
            )
        if speeds is not None and len(speeds) != workloads:
            raise ValueError(
                f"clustering.speeds has {len(speeds)} speeds and schedule.workloads = {workloads}: "
                "give one speed per workload"
            )
        if self.runtime.slots and self.runtime.slots > workloads:
            raise ValueError(
                f"runtime.slots = {self.runtime.slots} is more than schedule.workloads = {workloads}: "
                "a slot needs at least one workload"
            )
        if self.schedule.draw == "cluster" and self.partition.kind != "file" and workloads > clients:
            raise ValueError(
                f"schedule.workloads = {workloads} is more than partition.clients = {clients}: "
                "a cluster needs at least one client"
            )
        return self


def settings(model: type[Section] = Config, prefix: str = "") -> Iterator[tuple[str, type[Section], str]]:
    """Every setting as (dotted key, its section, field name), in the order of this file."""
    for name, field in model.model_fields.items():
        annotation = field.annotation
        if isinstance(annotation, type) and issubclass(annotation, Section):
            yield from settings(annotation, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", model, name


def presets() -> tuple[str, ...]:
    """The names that `load` accepts beside a file."""
    folder = resources.files("gcpsl") / "presets"
    return tuple(sorted(entry.name.removesuffix(".toml") for entry in folder.iterdir() if entry.name.endswith(".toml")))


def load(source: str | Path | None = None, overrides: Sequence[str] = ()) -> Config:
    """A config from a TOML file or preset (none: the defaults), then `key=value` overrides, checked."""
    values = {} if source is None else _read(source)
    for override in overrides:
        _apply(values, override)
    return from_mapping(values)


def from_mapping(values: Mapping[str, Any]) -> Config:
    """A config from nested dictionaries; what is wrong is named by its dotted key."""
    try:
        return Config.model_validate(values)
    except ValidationError as error:
        raise ConfigError("\n".join(explain(error, [key for key, _, _ in settings()]))) from None


def override(config: Config, *overrides: str) -> Config:
    """The same config with `key=value` changes, validated again."""
    values = config.model_dump(mode="json")
    for change in overrides:
        _apply(values, change)
    return from_mapping(values)


def to_toml(config: Config) -> str:
    """The config as a file that `load` reads back to the same; settings that are none are left out."""
    values = config.model_dump(mode="json")
    lines = [f"{name} = {_toml(value)}" for name, value in values.items() if not isinstance(value, dict)]
    for name, section in values.items():
        if isinstance(section, dict):
            lines += ["", f"[{name}]"]
            lines += [f"{key} = {_toml(value)}" for key, value in section.items() if value is not None]
    return "\n".join(lines) + "\n"


def _toml(value: object) -> str:
    """A value as TOML, whose strings, numbers, booleans and lists are JSON's but for two kinds of escapes."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _read(source: str | Path) -> dict[str, Any]:
    path = Path(source)
    if not str(source):
        raise ConfigError(f"'' is no file; give a TOML file or a preset: {', '.join(presets())}")
    if str(source) in presets():
        return tomllib.loads((resources.files("gcpsl") / "presets" / f"{source}.toml").read_text())
    try:
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        hint = nearest(str(source), presets())
        raise ConfigError(
            f"no config file '{source}', and no preset of that name: {hint} (a setting is written key=value)"
        ) from None
    except IsADirectoryError:
        raise ConfigError(f"'{source}' is a folder; give a TOML file or a preset: {', '.join(presets())}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"the config file '{path}' is not UTF-8 text; save it as UTF-8") from None
    except OSError as error:
        raise ConfigError(f"can't read the config file '{path}': {error.strerror or error}") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"'{path}' is not valid TOML: {error}") from None


def _apply(values: dict[str, Any], text: str) -> None:
    key, equals, raw = text.partition("=")
    if not (equals and key.strip() and raw.strip()):
        raise ConfigError(f"'{text}' is not an override; write key=value, as in schedule.workloads=8")
    *sections, name = key.strip().split(".")
    for section in sections:
        values = values.setdefault(section, {})
        if not isinstance(values, dict):
            raise ConfigError(f"'{key}' is not a setting: '{section}' has no settings below it")
    values[name] = _parse(raw.strip())


def _parse(raw: str) -> Any:
    """TOML's reading of the value, or else the plain string; `none` clears an optional setting."""
    if raw.lower() == "none":
        return None
    try:
        return tomllib.loads(f"value = {raw}")["value"]
    except tomllib.TOMLDecodeError:
        return raw
