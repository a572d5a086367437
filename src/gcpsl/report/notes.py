"""What stands below a table: how to read it, which rows lack runs, and on what the runs were trained."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gcpsl.report.provenance import environment_of
from gcpsl.report.sections import Section
from gcpsl.studies import Measure


def notes(section: Section, measures: Sequence[Measure]) -> tuple[str, ...]:
    return tuple(_notes(section, measures))


def _notes(section: Section, measures: Sequence[Measure]) -> Iterator[str]:
    yield "Means ± sample standard deviations over the seeds, of finished runs only."
    if any(one.target is not None for one in measures):
        yield (
            "A dash is a target that no run reached; where only some did, the mean is theirs, and their number is said."
        )
    names = [one.name for one in measures]
    if any(one.target is not None and one.name.startswith("r") for one in measures):
        yield "Rq: thousands of schedule-accounted rounds to q% accuracy."
    if any(one.target is not None and one.name.startswith("t") for one in measures):
        yield "tq: minutes of rounds, fusion and validation to q% accuracy."
    if any("payload" in name or name == "phase_gb" for name in names):
        yield "Payload: logical bytes of the tensors handled, in decimal units; not network traffic."
    if section.compared:
        yield "Below a row, what the paper prints of it, and the ratio of our value to the paper's."
    yield f"Trained on {', '.join(sorted(_places(section)))}."
    if section.missing:
        yield f"Without a finished run: {', '.join(section.missing)}."


def _places(section: Section) -> set[str]:
    environments = [environment_of(run) for line in section.lines for run in line.group.runs]
    return {f"{one.device} (gcpsl {one.gcpsl}, torch {one.torch})" for one in environments}
