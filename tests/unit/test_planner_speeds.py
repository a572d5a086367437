"""Plans for slots of different speeds: what heeding them changes, and what is advised for them."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console
from typer.testing import CliRunner

import gcpsl
from gcpsl import cli
from gcpsl.clustering import cluster
from gcpsl.config import ClusteringConfig, from_mapping
from gcpsl.errors import ConfigError
from gcpsl.fleet import Fleet, IntArray
from gcpsl.metrics import slot_times
from gcpsl.planner import Plan, Row, plan, plan_config
from gcpsl.planner_view import render, save_plot, to_json
from gcpsl.speeds import FloatArray

SPEEDS = (1, 1, 1, 0.5)


def fleet_of(clients: int) -> Fleet:
    random = np.random.default_rng(0)
    histograms = np.zeros((clients, 10), np.int64)
    for k in range(clients):
        histograms[k, random.choice(10, 2, replace=False)] = random.integers(40, 160, 2)
    return Fleet(tuple(str(k) for k in range(clients)), histograms.sum(axis=1), histograms)


@pytest.fixture(scope="module")
def slow_slot() -> Plan:
    return plan(fleet_of(256), batch_size=64, workloads=(2, 4), speeds=SPEEDS)


def row_of(answer: Plan, workloads: int, rule: str) -> Row:
    return next(row for row in answer.rows if (row.workloads, row.rule) == (workloads, rule))


def text_of(answer: Plan) -> str:
    console = Console(width=100, record=True, file=io.StringIO())
    console.print(render(answer))
    return console.export_text()


def test_without_speeds_nothing_speaks_of_them() -> None:
    answer = plan(fleet_of(64), batch_size=16, workloads=(2,))
    assert {(row.times, row.times_ignoring) for row in answer.rows} == {(None, None)}
    assert not any("times" in row for row in json.loads(to_json(answer))["rows"])
    assert "slot" not in text_of(answer).replace("one slot", "")


def test_equal_speeds_change_no_number_and_no_advice() -> None:
    plain, equal = (plan(fleet_of(256), batch_size=64, speeds=speeds) for speeds in (None, [2.0] * 16))
    assert [replace(row, times=None, times_ignoring=None) for row in equal.rows] == list(plain.rows)
    assert equal.recommendation.rule == plain.recommendation.rule
    assert equal.recommendation.workloads == plain.recommendation.workloads
    for row in equal.rows:
        assert row.times == row.times_ignoring
        assert row.epoch_time == row.rounds_max


def test_a_row_says_what_heeding_and_ignoring_speeds_would_take(slow_slot: Plan) -> None:
    fleet = fleet_of(256)
    for rule in ("size_balanced", "label_aware"):
        row = row_of(slow_slot, 4, rule)
        for speeds, times in ((SPEEDS, row.times), (None, row.times_ignoring)):
            made = cluster(ClusteringConfig(rule=rule, speeds=speeds), fleet, 4, 0)
            rounds = -(-np.bincount(made.assignment, weights=fleet.counts).astype(int) // 64)
            assert times == slot_times(rounds.tolist(), SPEEDS, "epoch")
            if speeds:
                assert made.report is not None
                assert (row.rounds, row.objective) == (tuple(rounds), made.report.after)
        assert row.times is not None
        assert row.times_ignoring is not None
        assert row.times_ignoring.epoch_time == pytest.approx(row.times.epoch_time * 7 / 4, rel=0.03)
        assert max(row.times.idle) < 0.04
        assert row.times_ignoring.idle == pytest.approx([0.5, 0.5, 0.5, 0], abs=0.03)
        assert (row.efficiency, row.speedup) == (row.times.efficiency, row.times.speedup)


def test_random_clusters_are_planned_as_they_are_and_said_to_take_no_speeds(slow_slot: Plan) -> None:
    row = row_of(slow_slot, 4, "random")
    assert row.times == row.times_ignoring
    assert row.efficiency < 0.6
    assert "random takes no speeds; to train with it, remove clustering.speeds." in slow_slot.notes


def test_fewer_workloads_take_the_fastest_slots() -> None:
    answer = plan(fleet_of(64), batch_size=16, workloads=(2,), rules=["size_balanced"], speeds=[1, 4, 2, 4])
    assert [row.times.speeds for row in answer.rows if row.times] == [(1.0,), (1.0, 1.0)]
    answer = plan(fleet_of(64), batch_size=16, workloads=(3,), rules=["size_balanced"], speeds=[1, 4, 2, 4])
    assert answer.rows[1].times is not None
    assert answer.rows[1].times.speeds == (1.0, 0.5, 1.0)


def test_barriers_within_the_epoch_are_counted() -> None:
    axes = {"workloads": 4, "batch_size": 64, "synchronise": 10}
    config = from_mapping({"schedule": axes, "clustering": {"speeds": SPEEDS}})
    row = row_of(plan_config(config, fleet_of(256)), 4, "size_balanced")
    assert row.times == slot_times(row.rounds, SPEEDS, 10)
    assert row.epoch_time > 1.2 * row.rounds_max


def test_the_advice_counts_time(slow_slot: Plan) -> None:
    """By rounds, clients of equal clusters take part as much; by time, a slow slot with as many holds all others up."""
    advice = slow_slot.recommendation
    assert (advice.workloads, advice.rule) == (4, "size_balanced")
    best = row_of(slow_slot, 4, "size_balanced")
    assert best.times_ignoring is not None
    assert f"takes the time of {best.epoch_time:,.1f} rounds on the fastest slot instead of" in advice.reason
    assert f"({best.times_ignoring.epoch_time:,.1f} if speeds were ignored)" in advice.reason
    slightly = plan(fleet_of(256), batch_size=64, workloads=(4,), speeds=(1, 1, 1, 0.8))
    blind, heeding = row_of(slightly, 4, "random"), row_of(slightly, 4, "size_balanced")
    assert blind.efficiency > 0.8
    assert blind.participation_system > heeding.participation_system
    assert slightly.recommendation.rule == "size_balanced"


def test_slots_that_no_rule_can_keep_busy_are_not_advised() -> None:
    answer = plan(fleet_of(256), batch_size=64, workloads=(2, 4), speeds=SPEEDS, synchronise="step")
    assert answer.recommendation.workloads == 2
    (out,) = answer.recommendation.ruled_out
    assert out.rule != "random"
    assert "slots wait at the barrier for 33% of their rounds" in out.reason


def test_a_config_asks_for_no_more_workloads_than_it_has_slots() -> None:
    config = from_mapping({"schedule": {"workloads": 3}, "clustering": {"speeds": [1, 2, 3]}})
    assert sorted({row.workloads for row in plan_config(config, fleet_of(64)).rows}) == [1, 2, 3]
    with_own = plan_config(config, fleet_of(64), rules=[config.clustering, "size_balanced"], workloads=[2])
    assert [row.rule for row in with_own.rows] == ["one workload", "label_aware", "size_balanced"]


@pytest.mark.parametrize(
    ("speeds", "rule", "message"),
    [
        ([1, 1], "size_balanced", r"workloads = 4, but clustering\.speeds knows 2 slots; ask for at most as many"),
        ([1, 1, 1, 0], "size_balanced", r"speeds = \[1, 1, 1, 0\]: give a positive number for each slot"),
        ([1, 1, 1, float("nan")], "size_balanced", "give a positive number"),
        ([], "size_balanced", "give a positive number"),
        (
            [1, 1, 1, 2],
            ClusteringConfig(speeds=(1, 2)),
            r"comes with speeds = \[1\.0, 2\.0\], which are not the plan's",
        ),
    ],
)
def test_slots_that_can_not_be_planned_for_are_refused(
    speeds: list[float], rule: ClusteringConfig | str, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        plan(fleet_of(64), batch_size=16, workloads=(4,), rules=[rule], speeds=speeds)


def test_a_rule_of_ones_own_is_planned_with_speeds_if_it_takes_them() -> None:
    def blind(fleet: Fleet, clusters: int, _: np.random.Generator) -> IntArray:
        return np.arange(fleet.clients) % clusters

    def told(fleet: Fleet, clusters: int, _: np.random.Generator, speeds: FloatArray | None = None) -> IntArray:
        return np.arange(fleet.clients) % clusters if speeds is None else np.arange(fleet.clients) % 3 // 2

    settings = ("schedule.workloads=2", "clustering.speeds=[2, 1]")
    answer = gcpsl.plan(None, *settings, rules=[blind, told], workloads=[2])
    times = {row.rule: (row.times, row.times_ignoring) for row in answer.rows}
    assert times["blind"] == (times["told"][1], times["told"][1])
    assert times["told"][0] != times["told"][1]
    assert any(note.startswith("blind takes no speeds") for note in answer.notes)


def test_the_tables_show_times_and_waits_and_fit_a_hundred_columns(slow_slot: Plan) -> None:
    text = text_of(slow_slot)
    assert "Time on these slots, and how long each waits" in text
    assert "Slots of speeds 1, 1, 1, 0.5: N workloads take the N fastest." in text
    many = text_of(plan(fleet_of(256), batch_size=16, workloads=(16,), speeds=[1, 0.25] * 8))
    for shown in (text, many):
        assert max(map(len, shown.splitlines())) <= 100
        assert "…" not in shown


def test_the_json_holds_times_for_machines(slow_slot: Plan) -> None:
    for shown, row in zip(json.loads(to_json(slow_slot))["rows"], slow_slot.rows, strict=True):
        assert row.times is not None
        assert shown["times"]["epoch_time"] == row.times.epoch_time
        assert shown["times"]["idle"] == list(row.times.idle)
        assert len(shown["times_ignoring"]["speeds"]) == row.workloads


def test_a_plot_shows_the_time_too(slow_slot: Plan, tmp_path: Path) -> None:
    assert save_plot(slow_slot, tmp_path / "plan.png").stat().st_size > 0
    text = save_plot(slow_slot, tmp_path / "plan.svg").read_text()
    assert "Time on the slots" in text


def test_the_command_line_takes_speeds() -> None:
    words = ["plan", "clustering.speeds=[1, 1, 1, 0.5]", "-n", "4", "--rules", "size_balanced", "--json"]
    value = json.loads(CliRunner().invoke(cli.app, words).output)
    assert value["rows"][1]["times"]["epoch_time"] < value["rows"][1]["times_ignoring"]["epoch_time"]
