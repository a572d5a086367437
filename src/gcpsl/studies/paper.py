"""The paper's studies: a function each, which returns its rows as configs.

Every row trains for 100 epochs at learning rate 0.01 unless it says otherwise. The label-aware rows use the default
rule; those named `...-printed`, trained only when asked for, use the variant whose schedules fit the paper's payloads.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache

from gcpsl import config as configs
from gcpsl.config import Config
from gcpsl.studies.base import Row, Study

CLUSTERED = ("Method", "Assignment", "N")
RULES = {"label-aware": "label_aware", "size-balanced": "size_balanced", "random": "random"}
PRINTED_RULE = (
    "clustering.rule=label_aware",
    "clustering.start=round_robin",
    "clustering.swaps=false",
    "clustering.measure=distance",
    "clustering.composition_weight=14",
)
SINGLE = ("schedule.workloads=1", "schedule.draw=all")
PER_STEP = ("schedule.draw=all", "schedule.synchronise=step")
SMOKE_SCALE = 4  # of clients and batches, so that N B / K stays
SMOKE_FUSION_ROUNDS = 5


def cluster_count() -> Study:
    return Study(
        name="cluster-count",
        about="More clusters, better-informed assignments; B = 64, 50,000 samples",
        headings=CLUSTERED,
        rows=(
            _gpsl(64),
            *(_gcpsl("label-aware", n) for n in (2, 4, 8, 16)),
            *(_gcpsl("size-balanced", n) for n in (2, 4, 8, 16)),
            _gcpsl("random", 8),
            *(_printed(n) for n in (4, 8)),
        ),
        measures=("accuracy", "r85", "r88", "inactivity", "batch_deviation"),
        smoke=smoke,
    )


def batch_128() -> Study:
    return Study(
        name="batch-128",
        about="The same where a batch reaches more of the clients, at B = 128",
        headings=CLUSTERED,
        rows=(_gpsl(128), _gcpsl("label-aware", 4, "schedule.batch_size=128")),
        measures=("accuracy", "r85", "r88", "inactivity"),
        smoke=smoke,
    )


def real_execution() -> Study:
    fixed, others = "Fixed-assignment comparison", "Other reference baselines"
    rows = [
        ("random", "Random", fixed, ["clustering.rule=random"]),
        ("size-balanced", "Size-balanced", fixed, ["clustering.rule=size_balanced"]),
        ("label-aware", "Label-aware", fixed, ["clustering.rule=label_aware"]),
        ("single-worker", "Single-worker", others, SINGLE),
        (
            "sequential",
            "Sequential label-aware",
            others,
            ["clustering.rule=label_aware", "schedule.execution=sequential"],
        ),
        (
            "repartitioned",
            "Repartitioned periodic",
            others,
            ["clustering.rule=random", "schedule.assignment=redrawn"],
        ),
        ("sharded", "Sharded synchronous", others, [*PER_STEP, "schedule.batch_size=16"]),
        ("data-parallel", "Data-parallel", others, [*PER_STEP, "optimizer.lr=0.02"]),
        ("larger-batch", "Larger-batch", others, [*SINGLE, "schedule.batch_size=256", "optimizer.lr=0.02"]),
    ]
    return Study(
        name="real-execution",
        about="Minutes to 85% validation accuracy in nine regimes, 45,000 samples",
        headings=("Method",),
        rows=tuple(
            Row(name, configs.load("paper-real", settings), label, group=group) for name, label, group, settings in rows
        ),
        measures=(
            "workers",
            "t85",
            "worker_minutes_85",
            "accuracy",
            "best_val_accuracy",
            "participation",
            "payload_real_tb_85",
        ),
        timed=True,
        smoke=smoke,
    )


def fusion() -> Study:
    rows = [
        ("epoch", "Concurrent", "one epoch", ()),
        ("sequential", "Sequential", "one epoch", ("schedule.execution=sequential",)),
        ("every-100-rounds", "Concurrent", "100 steps", ("schedule.synchronise=100",)),
        ("never", "Concurrent", "none", ("schedule.synchronise=never",)),
    ]
    return Study(
        name="fusion",
        about="How often label-aware clusters must be fused, at N = 8",
        headings=("Execution", "Fusion interval"),
        rows=tuple(
            Row(name, _gcpsl("label-aware", 8, *settings).config, f"{execution}, {interval}", (execution, interval))
            for name, execution, interval, settings in rows
        ),
        measures=("accuracy", "r85", "r88"),
        smoke=smoke,
    )


def payload() -> Study:
    return Study(
        name="payload",
        about="Logical bytes per phase and to a target, of runs of cluster-count",
        headings=("Method", "Clustering", "N"),
        rows=(
            replace(_gpsl(64), cells=("GPSL", "--", "--")),
            *(_gcpsl(rule, n) for n in (4, 8) for rule in ("label-aware", "size-balanced")),
        ),
        measures=("phase_gb", "payload_tb_85", "payload_tb_88"),
        smoke=smoke,
    )


def capacity() -> Study:
    """Larger batches at learning rate 0.04 beside moderate ones, and the memory that they take."""
    return Study(
        name="capacity",
        about="A larger batch in one workload instead of clusters, and its memory",
        headings=("Method", "Assignment", "N", "B"),
        rows=tuple(
            replace(row, cells=(*row.cells, str(row.config.schedule.batch_size)))
            for row in (
                _gpsl(64),
                _gcpsl("label-aware", 4),
                _gcpsl("size-balanced", 4),
                _gpsl(256, "optimizer.lr=0.04"),
                _gpsl(512, "optimizer.lr=0.04"),
            )
        ),
        measures=("r85", "r88", "accuracy", "memory_mib"),
        smoke=smoke,
    )


def cifar100() -> Study:
    """The paper gives no learning rate for B = 512 here; it is its capacity controls' 0.04."""
    changes = ("data.name=cifar100", "run.targets=[50, 60]")
    clustered = ("schedule.batch_size=128", *changes)
    rows = (
        replace(_gpsl(128, *changes), cells=("GPSL", "128", "--")),
        replace(_gcpsl("label-aware", 4, *clustered), cells=("Label-aware GCPSL", "128", "4")),
        replace(_gcpsl("size-balanced", 4, *clustered), cells=("Size-balanced GCPSL", "128", "4")),
        replace(_gpsl(512, "optimizer.lr=0.04", *changes), cells=("GPSL", "512", "--")),
    )
    return Study(
        name="cifar100",
        about="The boundary on CIFAR-100, at B = 128 and with one larger batch",
        headings=("Method", "B", "N"),
        rows=rows,
        measures=("r50", "r60", "accuracy"),
        smoke=smoke,
    )


@cache
def paper_studies() -> tuple[Study, ...]:
    return (cluster_count(), batch_128(), real_execution(), fusion(), payload(), capacity(), cifar100())


def smoke(config: Config) -> Config:
    """The same axes on the built-in digits with a tiny model, a quarter of the clients and batches, and few epochs."""
    schedule, optimizer = config.schedule, config.optimizer
    return configs.override(
        config,
        "data.name=digits",
        "data.root=none",
        "data.crop_padding=0",
        "data.flip=false",
        f"partition.clients={config.partition.clients // SMOKE_SCALE}",
        "model.name=mlp",
        "model.cut=none",
        f"schedule.batch_size={schedule.batch_size // SMOKE_SCALE}",
        *([f"schedule.synchronise={SMOKE_FUSION_ROUNDS}"] if isinstance(schedule.synchronise, int) else []),
        f"optimizer.lr={optimizer.lr * SMOKE_SCALE}",
        "train.epochs=2",
    )


def _gpsl(batch_size: int, *settings: str) -> Row:
    """One workload over all clients."""
    name = "gpsl" if batch_size == 64 else f"gpsl-{batch_size}"
    label = "GPSL" if batch_size == 64 else f"GPSL, B = {batch_size}"
    config = configs.load("paper-simulator", [*SINGLE, f"schedule.batch_size={batch_size}", *settings])
    return Row(name, config, label, ("GPSL", "global", "--"))


def _gcpsl(rule: str, n: int, *settings: str) -> Row:
    config = configs.load("paper-simulator", [f"clustering.rule={RULES[rule]}", f"schedule.workloads={n}", *settings])
    return Row(f"{rule}-{n}", config, f"{rule.capitalize()}, N = {n}", ("GCPSL", rule, str(n)))


def _printed(n: int) -> Row:
    config = _gcpsl("label-aware", n, *PRINTED_RULE).config
    label = f"Label-aware as the paper's payloads imply, N = {n}"
    return Row(f"label-aware-{n}-printed", config, label, ("GCPSL", "label-aware, as printed", str(n)), default=False)
