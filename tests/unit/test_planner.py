"""The planner's rows, its advice, its CSV and its views."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

import gcpsl
from gcpsl.clustering import cluster
from gcpsl.config import ClusteringConfig, Config, OptimizerConfig, from_mapping
from gcpsl.errors import ConfigError, DataError
from gcpsl.fleet import Fleet, IntArray
from gcpsl.metrics import PayloadSizes, epoch_payload, expected_participation
from gcpsl.models.sizes import SegmentSizes
from gcpsl.planner import Plan, fleet_from_csv, memory_slot_bytes, plan, plan_config, rule_label
from gcpsl.planner_view import render, save_plot, to_json

SIZES = SegmentSizes(
    client_parameters=100,
    server_parameters=900,
    norm_state_bytes=48,
    activation_bytes=64,
    saved_bytes_per_sample=1000,
)


def fleet_of(clients: int, classes: int = 10, held: int = 2) -> Fleet:
    """Clients with a few classes each, as in the paper."""
    rng = np.random.default_rng(0)
    histograms = np.zeros((clients, classes), np.int64)
    for k in range(clients):
        histograms[k, rng.choice(classes, held, replace=False)] = rng.integers(40, 160, held)
    return Fleet(tuple(str(k) for k in range(clients)), histograms.sum(axis=1), histograms)


def counts_only(counts: list[int]) -> Fleet:
    return Fleet(tuple(str(k) for k in range(len(counts))), np.array(counts, dtype=np.int64))


@pytest.fixture(scope="module")
def paper() -> Plan:
    return plan(fleet_of(256), batch_size=64, sizes=SIZES)


def test_one_workload_comes_first_and_then_every_rule_at_every_n(paper: Plan) -> None:
    assert [(row.workloads, row.rule) for row in paper.rows] == [
        (1, "one workload"),
        *((n, rule) for n in (2, 4, 8, 16) for rule in ("random", "size_balanced", "label_aware")),
    ]


def test_a_row_is_what_its_pieces_say_one_by_one(paper: Plan) -> None:
    fleet = fleet_of(256)
    row = next(row for row in paper.rows if (row.workloads, row.rule) == (4, "label_aware"))
    made = cluster(ClusteringConfig(rule="label_aware"), fleet, 4, 0)
    expected = expected_participation(fleet.counts, made.assignment, 64)
    assert made.report is not None
    assert row.objective == made.report.after
    assert row.rounds == expected.schedule.rounds
    assert (row.participation_ran, row.participation_system) == (expected.direct_ran, expected.direct_system)
    assert row.payload == epoch_payload(PayloadSizes.of(SIZES), fleet.samples, expected, workloads=4, fusions=1)
    assert row.samples_max == max(int(fleet.counts[made.assignment == n].sum()) for n in range(4))


@pytest.mark.parametrize("synchronise", ["epoch", "never", 50])
def test_the_plan_of_a_config_pays_for_its_fusions(synchronise: str | int) -> None:
    fleet = fleet_of(256)
    schedule = {"workloads": 4, "batch_size": 64, "synchronise": synchronise}
    answer = plan_config(from_mapping({"schedule": schedule}), fleet, SIZES, workloads=[4], rules=["size_balanced"])
    assignment = cluster(ClusteringConfig(rule="size_balanced"), fleet, 4, 0).assignment
    expected = expected_participation(fleet.counts, assignment, 64)
    barriers = {"epoch": [0], "never": [], 50: range(0, expected.schedule.rounds_max, 50)}[synchronise]
    assert answer.rows[1].payload == epoch_payload(
        PayloadSizes.of(SIZES), fleet.samples, expected, workloads=4, fusions=len(barriers)
    )
    assert expected.schedule.rounds_max > 100


def test_participation_never_exceeds_its_bound(paper: Plan) -> None:
    for row in paper.rows:
        assert row.participation_system <= row.participation_bound
        assert row.participation_system <= row.participation_ran + 1e-12


def test_the_papers_setting_is_advised_four_workloads_with_counts_only_disclosed(paper: Plan) -> None:
    advice = paper.recommendation
    assert (advice.workloads, advice.rule) == (4, "size_balanced")
    assert [out.workloads for out in advice.ruled_out] == [8, 16]
    assert "reaches K = 256 at N = 4" in advice.ruled_out[0].reason
    assert "half a batch" in advice.ruled_out[1].reason


def test_more_workloads_are_advised_while_the_bound_still_rises() -> None:
    answer = plan(fleet_of(1024), batch_size=16, workloads=(2, 4, 8), rules=("size_balanced",))
    assert answer.recommendation.workloads == 8
    assert "the bound would rise until N = 64" in answer.recommendation.reason


def test_one_workload_is_advised_where_its_batch_has_room_for_every_client() -> None:
    answer = plan(counts_only([50] * 40), batch_size=64, workloads=(2, 4))
    assert answer.recommendation.workloads == 1
    assert "room for all 40 clients" in answer.recommendation.reason


def test_an_n_whose_slots_mostly_wait_is_not_advised() -> None:
    answer = plan(counts_only([100_000] + [10] * 299), batch_size=8, workloads=(4,))
    assert answer.recommendation.workloads == 1
    assert "wait at the barrier" in answer.recommendation.ruled_out[0].reason
    assert "costs too much" in answer.recommendation.reason


def test_an_n_whose_batches_lose_their_labels_is_not_advised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "rules_by_label.py").write_text(
        "import numpy as np\ndef halves(fleet, clusters, generator):\n    return np.arange(128) // (128 // clusters)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    histograms = np.kron(np.eye(2, dtype=np.int64), np.full((64, 1), 100))
    fleet = Fleet(tuple(str(k) for k in range(128)), histograms.sum(axis=1), histograms)
    answer = plan(fleet, batch_size=32, workloads=(2,), rules=("rules_by_label:halves",))
    assert answer.recommendation.workloads == 1
    assert "from the global labels" in answer.recommendation.ruled_out[0].reason
    assert answer.rows[1].discloses.startswith("whatever the fleet holds")


def test_where_rules_do_equally_well_the_one_that_discloses_least_is_advised() -> None:
    answer = plan(counts_only([64] * 256), batch_size=64, workloads=(4,))
    assert answer.recommendation.rule == "random"


def test_only_one_workload_asked_is_answered_plainly() -> None:
    answer = plan(counts_only([64] * 256), batch_size=64, workloads=(1,))
    assert len(answer.rows) == 1
    assert answer.recommendation.reason.startswith("no other N was asked")


def test_counts_alone_leave_out_the_label_aware_rule_with_a_note() -> None:
    answer = plan(counts_only([10] * 64), batch_size=8, workloads=(2,))
    assert {row.rule for row in answer.rows} == {"one workload", "random", "size_balanced"}
    assert any("label_aware is left out" in note for note in answer.notes)
    assert {(row.deviation, row.objective, row.payload, row.memory_slot_bytes) for row in answer.rows} == {
        (None, None, None, None)
    }


@pytest.mark.parametrize(
    ("workloads", "batch_size", "rule", "message"),
    [
        (65, 8, "random", "N goes from 1 to the fleet's number of clients, 64"),
        (0, 8, "random", "workloads = 0"),
        (2, 0, "random", "at least 1 sample"),
        (2, 8, "label_aware", "add 'size_balanced'"),
        (2, 8, "size_balance", "size_balanced"),
    ],
)
def test_a_question_that_can_not_be_answered_says_what_can(
    workloads: int, batch_size: int, rule: str, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        plan(counts_only([10] * 64), workloads=[workloads], batch_size=batch_size, rules=[rule])


@pytest.mark.parametrize(
    ("optimizer", "copies"),
    [
        (OptimizerConfig(), 3),
        (OptimizerConfig(momentum=0, nesterov=False), 2),
        (OptimizerConfig(kind="adamw"), 4),
    ],
)
def test_slot_memory_counts_parameters_gradients_and_the_optimizers_moments(
    optimizer: OptimizerConfig, copies: int
) -> None:
    assert memory_slot_bytes(SIZES, 8, optimizer) == copies * 4 * 1000 + 8 * 1000 + 48


def test_a_config_asks_for_its_own_n_rule_and_batch() -> None:
    config = from_mapping(
        {"schedule": {"workloads": 3, "batch_size": 16}, "clustering": {"rule": "label_aware", "swaps": False}}
    )
    answer = plan_config(config, fleet_of(12), SIZES)
    assert sorted({row.workloads for row in answer.rows}) == [1, 2, 3, 4, 8]
    assert "label_aware(swaps=False)" in {row.rule for row in answer.rows}
    assert answer.batch_size == 16
    assert plan_config(config, fleet_of(12), rules=["random"], workloads=[2]).rows[1].rule == "random"


def test_a_regime_that_is_not_planned_is_said_to_differ() -> None:
    config = from_mapping({"schedule": {"draw": "all"}})
    assert "draw their own batches" in plan_config(config, fleet_of(16)).notes[-1]
    assert "draw their own batches" not in " ".join(plan_config(Config(), fleet_of(16)).notes)


def test_a_rules_label_names_what_differs_from_the_defaults() -> None:
    assert rule_label(ClusteringConfig(rule="random")) == "random"
    assert rule_label(ClusteringConfig(measure="distance")) == "label_aware(measure=distance)"


def test_the_tables_fit_a_hundred_columns_and_say_what_is_advised(paper: Plan) -> None:
    console = Console(width=100, record=True, file=io.StringIO())
    console.print(render(paper))
    text = console.export_text()
    assert max(map(len, text.splitlines())) <= 100
    assert "…" not in text
    assert "* N = 4, size_balanced, because" in text
    assert "Not N = 16" in text
    assert "label_aware discloses: a sample count and a class histogram per client" in text


def test_large_counts_are_shortened_to_fit() -> None:
    fleet = counts_only([150_000 + k for k in range(64)])
    console = Console(width=100, record=True, file=io.StringIO())
    console.print(render(plan(fleet, batch_size=64, workloads=(2, 64))))
    text = console.export_text()
    assert "4.80M" in text
    assert "150.0k-150.1k" in text
    assert max(map(len, text.splitlines())) <= 100


def test_the_json_holds_the_whole_plan(paper: Plan) -> None:
    value = json.loads(to_json(paper))
    assert len(value["rows"]) == len(paper.rows)
    assert value["rows"][4]["rounds_max"] == paper.rows[4].rounds_max
    assert value["rows"][4]["objective"]["total"] == pytest.approx(
        value["rows"][4]["objective"]["balance"] + value["rows"][4]["objective"]["composition"]
    )
    assert value["recommendation"]["workloads"] == 4


@pytest.mark.parametrize(("suffix", "begins"), [(".png", b"\x89PNG"), (".svg", b"<?xml")])
def test_a_plot_is_written_in_the_format_of_its_suffix(paper: Plan, tmp_path: Path, suffix: str, begins: bytes) -> None:
    assert save_plot(paper, tmp_path / f"plan{suffix}").read_bytes().startswith(begins)


def test_a_plot_needs_neither_histograms_nor_sizes(tmp_path: Path) -> None:
    path = save_plot(plan(counts_only([10] * 64), batch_size=8, workloads=(2,)), tmp_path / "plan.png")
    assert path.stat().st_size > 0


def test_a_plot_that_can_not_be_written_says_why(paper: Plan, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"ends in \.png"):
        save_plot(paper, tmp_path / "plan.txt")
    with pytest.raises(ConfigError, match="can't write"):
        save_plot(paper, tmp_path / "nowhere" / "plan.png")


def test_a_csv_with_class_counts_is_read_in_its_order(tmp_path: Path) -> None:
    path = tmp_path / "fleet.csv"
    path.write_text("\ufeffclient,count,cat,dog\nb,3,1,2\n\n a ,4,4,0\n", encoding="utf-8")
    fleet = fleet_from_csv(path)
    assert fleet.ids == ("b", "a")
    assert fleet.counts.tolist() == [3, 4]
    assert fleet.histograms is not None
    assert fleet.histograms.tolist() == [[1, 2], [4, 0]]


def test_a_csv_of_counts_alone_has_no_histograms(tmp_path: Path) -> None:
    path = tmp_path / "fleet.csv"
    path.write_text("client,count\na,3\n")
    assert fleet_from_csv(str(path)).histograms is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"is empty, but its first line must be the header"),
        ("a,3\n", r"begins with 'a,3'"),
        ("client;count\na;3\n", r"separate the columns by commas"),
        ("client,count\n", r"names no clients"),
        ("client,count\na,3,4\n", r"line 2 has 3 fields, but the header has 2"),
        ("client,count\na,3\nb\n", r"line 3 has 1 fields"),
        ("client,count\n ,3\n", r"line 2: the client has no name"),
        ("client,count\na,3\na,4\n", r"line 3: client 'a' is already on line 2"),
        ("client,count\na,3.5\n", r"line 2: '3.5' is not a whole number"),
        ("client,count\na,0\n", r"line 2: the count is 0"),
        ("client,count,x,y\na,3,4,-1\n", r"line 2: a class count is -1"),
        ("client,count,x,y\na,3,1,1\n", r"line 2: the class counts sum to 2, but the count is 3"),
        ("client,count\na,9999999999999\n", r"line 2: 9999999999999 is more than"),
    ],
)
def test_a_bad_csv_is_refused_with_its_file_and_line(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "fleet.csv"
    path.write_text(text)
    with pytest.raises(DataError, match=message) as caught:
        fleet_from_csv(path)
    assert "fleet.csv" in str(caught.value)


def test_a_csv_that_is_missing_or_not_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no file"):
        fleet_from_csv(tmp_path / "none.csv")
    (tmp_path / "image.csv").write_bytes(b"client,count\n\xff\xfe,3\n")
    with pytest.raises(DataError, match="can't read"):
        fleet_from_csv(tmp_path / "image.csv")


def test_planning_loads_neither_torch_nor_sklearn_nor_matplotlib() -> None:
    script = (
        "import sys, gcpsl.planner, gcpsl.planner_view, gcpsl.metrics;"
        "print([m for m in ('torch', 'sklearn', 'scipy', 'matplotlib') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_rule_of_ones_own_is_a_function_here_too() -> None:
    def alternating(fleet: Fleet, clusters: int, _: np.random.Generator) -> IntArray:
        return np.arange(fleet.clients) % clusters

    answer = gcpsl.plan(None, rules=[alternating, "random"], workloads=[4])
    assert [row.rule for row in answer.rows] == ["one workload", "alternating", "random"]
    assert "sees all of it" in answer.rows[1].discloses


def test_what_is_no_config_is_refused() -> None:
    with pytest.raises(ConfigError, match="5 is no config"):
        gcpsl.plan(5)  # type: ignore[arg-type]
