"""What executes a schedule: one algorithm, many runtimes."""

from gcpsl.runtimes.base import Job, Runtime
from gcpsl.runtimes.eager import EagerRuntime


def make_runtime(job: Job) -> Runtime:
    """The runtime that the config asks for; `auto` picks the best for the device."""
    assert job.config.runtime.kind in ("auto", "eager")
    return EagerRuntime(job)
