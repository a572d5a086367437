"""How long clustering takes on one core, and how close the label-aware search comes to the best there is.

One JSON line per figure. Run it as `python benchmarks/clustering.py`; it takes about a minute.
"""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial

import numpy as np
from harness import report

from gcpsl.clustering import Clustering, cluster, objective
from gcpsl.config import ClusteringConfig
from gcpsl.data.extended_dirichlet import gpsl
from gcpsl.fleet import Fleet, IntArray

SIZE_BALANCED = ClusteringConfig(rule="size_balanced")
DEFAULT = ClusteringConfig(rule="label_aware")
LITERAL = ClusteringConfig(rule="label_aware", start="size_balanced", swaps=False)


def extended_dirichlet(clients: int, per_client: int, classes: int, samples: int, seed: int = 0) -> Fleet:
    labels = np.arange(samples) % classes
    owners = gpsl(clients, per_client, 3.0, labels, classes, np.random.default_rng(seed))
    return Fleet.from_owners(np.unique(owners, return_inverse=True)[1], labels, classes)


def dirichlet(clients: int, classes: int, samples: int) -> Fleet:
    """Every client holds nearly every class."""
    random = np.random.default_rng(0)
    shares = random.dirichlet(np.ones(clients), size=classes)
    histograms = np.stack([random.multinomial(samples // classes, share) for share in shares], axis=1)
    return Fleet(tuple(map(str, range(clients))), histograms.sum(axis=1), histograms)


def timed(run: Callable[[], Clustering], repeats: int = 1) -> tuple[float, Clustering]:
    """The least of the times, in seconds, and what came of it."""
    seconds = []
    for _ in range(repeats):
        started = time.perf_counter()
        found = run()
        seconds.append(time.perf_counter() - started)
    return min(seconds), found


def half_slow(config: ClusteringConfig, clusters: int) -> ClusteringConfig:
    """The rule, for slots of which the second half is half as fast."""
    return config.model_copy(update={"speeds": (1.0,) * (clusters // 2) + (0.5,) * (clusters - clusters // 2)})


def time_label_aware(
    name: str, fleet: Fleet, clusters: int, limit: str, repeats: int = 1, config: ClusteringConfig = DEFAULT
) -> None:
    seconds, found = timed(lambda: cluster(config, fleet, clusters, seed=0), repeats)
    assert found.report is not None
    reached = found.report
    literal = cluster(LITERAL.model_copy(update={"speeds": config.speeds}), fleet, clusters, seed=0).report
    assert literal is not None
    report(
        f"clustering.label_aware.{name}",
        seconds,
        "s",
        limit,
        clients=fleet.clients,
        clusters=clusters,
        samples=fleet.samples,
        moves=reached.moves,
        swaps=reached.swaps,
        optimum_of=reached.optimum_of,
        j=reached.after.total,
        literal_j=literal.after.total,
    )


def time_size_balanced(clients: int) -> None:
    counts = np.random.default_rng(0).lognormal(4, 0.8, clients).astype(np.int64) + 1
    fleet = Fleet(tuple(map(str, range(clients))), counts)
    for name, config in (("1m", SIZE_BALANCED), ("1m_half_slow", half_slow(SIZE_BALANCED, 32))):
        seconds, _ = timed(partial(cluster, config, fleet, 32, seed=0), repeats=3)
        report(f"clustering.size_balanced.{name}", seconds, "s", "< 3", clients=clients, clusters=32)


def least_j(fleet: Fleet, clusters: int) -> float:
    """By trying every assignment; the first client's cluster is a matter of naming."""
    assignments = (np.array((0, *rest)) for rest in itertools.product(range(clusters), repeat=fleet.clients - 1))
    return min(objective(fleet, a, clusters).total for a in assignments if fills(a, clusters))


def fills(assignment: IntArray, clusters: int) -> bool:
    return len(np.unique(assignment)) == clusters


def gap_to_the_best(cases: int) -> None:
    """Mean J over small fleets, over the mean of the least possible J."""
    best, default, literal = np.zeros(cases), np.zeros(cases), np.zeros(cases)
    for case in range(cases):
        clients, clusters = 5 + case % 4, 2 + case % 2
        fleet = extended_dirichlet(clients, 2, 4, 60 + 37 * case, seed=case)
        best[case] = least_j(fleet, clusters)
        for config, found in ((DEFAULT, default), (LITERAL, literal)):
            found[case] = objective(fleet, cluster(config, fleet, clusters, seed=0).assignment, clusters).total
    ratio = float(default.mean() / best.mean())
    optimal = float((default < best + 1e-12).mean())
    worst = float((default - best).max())
    detail = {"cases": cases, "optimal": optimal, "worst_gap": worst, "literal": float(literal.mean() / best.mean())}
    report("clustering.label_aware.j_over_best", ratio, "ratio", "< 1.05", **detail)


def main() -> None:
    time_label_aware("256", extended_dirichlet(256, 2, 10, 50_000), 8, "< 0.1", repeats=10)
    slots = half_slow(DEFAULT, 8)
    time_label_aware("256_half_slow", extended_dirichlet(256, 2, 10, 50_000), 8, "< 0.1", repeats=10, config=slots)
    time_label_aware("10k_two_classes", extended_dirichlet(10_000, 2, 100, 500_000), 32, "< 20")
    time_label_aware("10k_five_classes", extended_dirichlet(10_000, 5, 100, 1_000_000), 32, "< 20")
    time_label_aware("10k_all_classes", dirichlet(10_000, 100, 1_000_000), 32, "< 20")
    time_size_balanced(1_000_000)
    gap_to_the_best(40)


if __name__ == "__main__":
    if os.environ.get("OMP_NUM_THREADS") == "1":
        main()
    else:  # NumPy's BLAS reads this when it is loaded
        one_thread = {**os.environ, "OMP_NUM_THREADS": "1"}
        sys.exit(subprocess.run([sys.executable, __file__], env=one_thread, check=False).returncode)
