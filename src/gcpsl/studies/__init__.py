"""Studies: many runs that make a table or a figure. The paper's, and a user's own.

Knows configs and run folders; only the runner trains, through the public `train` and `resume`.
"""

from gcpsl.studies.base import Row, Study
from gcpsl.studies.matching import Entry, Found, best_of, find_runs, finished, run_key, serves
from gcpsl.studies.measures import Finished, Measure, measure
from gcpsl.studies.paper import paper_studies
from gcpsl.studies.paper_values import (
    PaperComparison,
    PaperValue,
    paper_comparisons,
    paper_value,
    paper_values,
)

__all__ = [
    "Entry",
    "Finished",
    "Found",
    "Measure",
    "PaperComparison",
    "PaperValue",
    "Row",
    "Study",
    "best_of",
    "find_runs",
    "finished",
    "measure",
    "paper_comparisons",
    "paper_studies",
    "paper_value",
    "paper_values",
    "run_key",
    "serves",
]
