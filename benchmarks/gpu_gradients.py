"""How far one round's gradients are from float64's, in each precision, on ResNet-18 with four workloads of 64 samples.

Float64 is each replica's own modules under autograd. Beside it stands the error that PyTorch's own kernels make of the
same modules in the same precision: the stacked kernels should be no worse.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Literal

import torch
from gpu import BATCH, made, settings
from harness import RECORDED, report
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from gcpsl import environment
from gcpsl.models import build
from gcpsl.runtimes.numerics import DTYPES, Numerics, Precision

WORKLOADS = 4


def autograd(
    client: nn.Module, server: nn.Module, images: Tensor, labels: Tensor, precision: Precision | Literal["float64"]
) -> list[Tensor]:
    """One replica's gradients by its modules, parameter by parameter."""
    if precision == "float64":
        client, server, images = client.double(), server.double(), images.double()
    low = torch.float32 if precision == "float64" else DTYPES[precision]
    with torch.autocast("cuda", low if low != torch.float32 else torch.bfloat16, enabled=low != torch.float32):
        scores = server(client(images))
    scores = scores if precision == "float64" else scores.float()
    cross_entropy(scores, labels, label_smoothing=0.1).backward()
    gradients = _gradients(client, server)
    for module in (client, server):
        module.zero_grad()
    return gradients


def _gradients(*modules: nn.Module) -> list[Tensor]:
    return [p.grad.double() for module in modules for p in module.parameters() if p.grad is not None]


def apart(ours: list[Tensor], exact: list[Tensor]) -> float:
    """The norm of the difference over the norm, of all parameters together."""
    squares = [((a - b).square().sum(), b.square().sum()) for a, b in zip(ours, exact, strict=True)]
    return float((sum(s for s, _ in squares) / sum(e for _, e in squares)) ** 0.5)


def check(precision: Precision) -> None:
    config = settings(WORKLOADS, precision)
    runtime, schedule = made(config)
    model = build(config.model, (3, 32, 32), 10, config.seed)
    lanes, train = runtime._lanes, runtime._samples["train"]
    runtime.prepare(schedule)
    lanes.turn_to([0] * WORKLOADS, schedule.rounds, lr=0.0)
    lanes.gradients(lanes.everyone, BATCH)
    scale = float(lanes.everyone.scale_n[0])
    worst = {"stacked": 0.0, "modules": 0.0}
    for n, workload in enumerate(runtime.workloads):
        plan = schedule.plans[n].round(0)
        bits = torch.from_numpy(plan.bits.view("int64")).cuda()
        samples = torch.from_numpy(plan.samples).cuda()
        images, labels = train.batch(samples, bits), train.labels[samples]
        exact = autograd(model.client.cuda(), model.server.cuda(), images, labels, "float64")
        with Numerics(precision, deterministic=False).set():
            theirs = autograd(model.client.float(), model.server.float(), images, labels, precision)
        ours = [
            p.grad.double() / scale for s in workload.segments() for p in s.module.parameters() if p.grad is not None
        ]
        worst["stacked"] = max(worst["stacked"], apart(ours, exact))
        worst["modules"] = max(worst["modules"], apart(theirs, exact))
    report(f"gradients in {precision}, error", worst["stacked"], "of float64's", pytorch=round(worst["modules"], 6))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    precisions: list[Precision] = ["fp32", "tf32", "fp16", "bf16"]
    for precision in precisions:
        check(precision)
    if options.out:
        options.out.write_text(json.dumps({"environment": environment.describe(), "figures": RECORDED}, indent=1))


if __name__ == "__main__":
    main()
