"""The figures of `benchmarks/paper_numbers.py`, each within its limit of the paper's or an independent value."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "paper_numbers.py"


@pytest.fixture(scope="module")
def script() -> dict[str, Any]:
    return runpy.run_path(str(SCRIPT))


@pytest.mark.parametrize(
    ("part", "count"),
    [
        ("inactivities", 6),
        ("participations", 5),
        ("deviations", 3),
        ("drawn_plans", 6),
        ("payload_tables", 9),
        ("label_aware_payloads", 6),
        ("real_payloads", 5),
    ],
)
def test_every_figure_is_within_its_limit(script: dict[str, Any], part: str, count: int) -> None:
    figures = list(script[part]())
    assert len(figures) == count
    assert [figure for figure in figures if not figure.holds] == []


def test_the_model_has_the_sizes_that_the_papers_payload_implies(script: dict[str, Any]) -> None:
    sizes = script["resnet18"]()
    assert (sizes.activation_bytes, sizes.client_bytes) == (262_144, 599_296)
    assert sizes.model_bytes == 4 * 11_173_962
