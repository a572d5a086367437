"""What executes a schedule: one algorithm, many runtimes."""

from gcpsl.runtimes.base import Job, Runtime
from gcpsl.runtimes.eager import EagerRuntime, choose_device
from gcpsl.runtimes.graphed import GraphedRuntime


def make_runtime(job: Job) -> Runtime:
    """The runtime that the config asks for; `auto` picks the best for the device."""
    runtime = job.config.runtime
    kind = runtime.kind
    if kind == "auto":
        graphed = choose_device(runtime).type == "cuda" and runtime.client_side == "shared"
        kind = "graphed" if graphed else "eager"
    return GraphedRuntime(job) if kind == "graphed" else EagerRuntime(job)
