"""What executes a schedule: one algorithm, many runtimes."""

from gcpsl.config import Config
from gcpsl.errors import ConfigError
from gcpsl.ranks import Alone, Ranks
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
    if kind == "eager" and runtime.precision not in ("auto", "fp32"):
        raise ConfigError(
            f"runtime.precision = '{runtime.precision}', but without CUDA runs are eager, in fp32; leave it out or set "
            "runtime.kind = 'graphed'"
        )
    return GraphedRuntime(job) if kind == "graphed" else EagerRuntime(job)


def open_ranks(config: Config) -> Ranks:
    """This process's place in the run: alone, or one of those that torchrun has started."""
    from gcpsl.runtimes import slots

    if not slots.launched_by_torchrun():
        return Alone()
    ranks, asked = slots.world_size(), config.runtime.slots
    if asked is not None and asked != ranks:
        raise ConfigError(f"runtime.slots = {asked}, but torchrun started {ranks} processes; leave runtime.slots out")
    if ranks > config.schedule.workloads:
        raise ConfigError(
            f"torchrun started {ranks} processes for schedule.workloads = {config.schedule.workloads}: "
            "start at most one for each workload"
        )
    device = choose_device(config.runtime)
    if device.type == "cuda":
        device = slots.take_own_gpu()
    return slots.Slots(config.schedule.workloads, device, config.runtime.timeout_s)
