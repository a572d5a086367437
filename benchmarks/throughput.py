"""Images per second of the client sides against a bare PyTorch loop over the same batches, taking turns in one process.

The bare loop knows nothing of this package: the unsplit network with the same norms, uint8 images gathered and
normalised, one optimizer. Run it with no arguments; `--quick` makes fewer turns.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator

import torch
from harness import interleaved, ratio, report, synthetic
from torch import nn
from torch.nn.functional import cross_entropy

from gcpsl.config import Config, from_mapping
from gcpsl.data import Dataset, FederatedData, federate
from gcpsl.models import build
from gcpsl.models.catalogue import ZOO
from gcpsl.models.norms import to_group_norm
from gcpsl.models.zoo.resnet import resnet18
from gcpsl.models.zoo.small_cnn import small_cnn
from gcpsl.runtimes.base import Job
from gcpsl.runtimes.eager import EagerRuntime
from gcpsl.sampling import EpochPlan, Holdings, epoch_plan

CLIENTS = 256
BATCH = 64


def bare_network(name: str, shape: tuple[int, int, int], *, channels_last: bool = True) -> nn.Module:
    """The unsplit network, with GroupNorm where the client segment of the default cut has it."""
    if name == "resnet18":
        network: nn.Module = resnet18(shape, 10)
        client = ["bn1", "layer1"]
    else:
        network = small_cnn(shape, 10)
        client = ["stage1", "stage2"]
    for child in client:
        holder = nn.ModuleDict({"it": network.get_submodule(child)})
        to_group_norm(holder, ZOO[name].groups)
        network.set_submodule(child, holder["it"])
    for parameter in network.parameters():
        if channels_last and parameter.dim() == 4:
            parameter.data = parameter.data.contiguous(memory_format=torch.channels_last)
    return network


def bare_loop(name: str, data: FederatedData, config: Config) -> Callable[[torch.Tensor], None]:
    """A plain training step on given sample indices."""
    network = bare_network(name, data.input_shape)
    settings = config.optimizer
    optimizer = torch.optim.SGD(
        network.parameters(),
        lr=settings.lr,
        momentum=settings.momentum,
        nesterov=settings.nesterov,
        weight_decay=settings.weight_decay,
    )
    images = torch.from_numpy(data.train.images).contiguous(memory_format=torch.channels_last)
    labels = torch.from_numpy(data.train.labels)
    mean = torch.from_numpy(data.mean).float()[:, None, None]
    std = torch.from_numpy(data.std).float()[:, None, None]

    def step(indices: torch.Tensor) -> None:
        batch = (images[indices].float().div_(255) - mean) / std
        optimizer.zero_grad(set_to_none=True)
        loss = cross_entropy(network(batch), labels[indices], label_smoothing=config.train.label_smoothing)
        loss.backward()
        optimizer.step()
        loss.item()

    return step


def contenders(
    name: str, dataset: Dataset, sides: list[str], rounds: int
) -> tuple[dict[str, Callable[[], None]], EpochPlan]:
    """The bare loop and the client sides, each doing the same next rounds whenever it is called."""
    config = from_mapping(
        {
            "data": {"validation_fraction": 0.0},
            "partition": {"clients": CLIENTS},
            "model": {"name": name},
            "schedule": {"workloads": 1, "batch_size": BATCH},
        }
    )
    data = federate(config, dataset)
    holdings = Holdings.of(data.owners, CLIENTS)
    members = torch.arange(CLIENTS).numpy()
    plan = epoch_plan(holdings, members, BATCH, seed=0, cluster=0, epoch=1)
    bare = bare_loop(name, data, config)

    def cycle() -> Iterator[int]:
        while True:
            yield from range(plan.rounds)

    def run_bare() -> None:
        for _, t in zip(range(rounds), turns["bare"], strict=False):
            bare(torch.from_numpy(plan.samples[plan.bounds[t] : plan.bounds[t + 1]]))

    def side_runner(side: str) -> Callable[[], None]:
        settings = config.model_copy(update={"runtime": config.runtime.model_copy(update={"client_side": side})})
        model = build(config.model, data.input_shape, data.classes, 0)
        workload = EagerRuntime(Job(settings, data, model)).workloads[0]
        workload.clients.enrol(members)

        def run() -> None:
            for _, t in zip(range(rounds), turns[side], strict=False):
                float(workload.round(plan.round(t), config.optimizer.lr))

        return run

    turns = {key: cycle() for key in ["bare", *sides]}
    return {"bare": run_bare, **{side: side_runner(side) for side in sides}}, plan


def compare(name: str, shape: tuple[int, int, int], rounds: int, repeats: int, limit: str) -> None:
    runners, plan = contenders(name, synthetic(8192, shape), ["shared"], rounds)
    seconds = interleaved(runners, repeats)
    images = rounds * len(plan.samples) / plan.rounds
    best = {side: round(images / min(values), 1) for side, values in seconds.items()}
    report(f"{name} shared/bare", ratio(seconds["bare"], seconds["shared"]), "x", limit, images_per_s=best)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    compare("small_cnn", (1, 8, 8), rounds=50, repeats=10 if quick else 60, limit=">= 0.85")
    compare("resnet18", (3, 32, 32), rounds=1 if quick else 2, repeats=3 if quick else 12, limit=">= 0.95")
    runners, _ = contenders("small_cnn", synthetic(8192, (1, 8, 8)), ["shared", "replicas"], rounds=3)
    del runners["bare"]
    seconds = interleaved(runners, repeats=3 if quick else 10)
    report("small_cnn shared/replicas", ratio(seconds["replicas"], seconds["shared"]), "x", ">= 10")


if __name__ == "__main__":
    main()
