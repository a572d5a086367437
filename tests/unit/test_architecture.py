"""Imports point one way, files stay short, and the project speaks of itself alone."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from gcpsl import errors

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "gcpsl"
MODULES = sorted(SOURCE.rglob("*.py"))

# each layer may import from itself and from those before it
LAYERS = (
    ("errors", "explain", "seeds", "fleet", "plugins", "config"),
    ("data", "sampling", "clustering", "dealing", "speeds", "label_search", "models"),
    ("flat", "kernels", "workload", "fusion", "ranks", "schedule", "share", "metrics"),
    ("runtimes", "records", "runs", "planner", "planner_advice", "planner_csv", "planner_view"),
    (
        "summary",
        "identity",
        "summary_view",
        "display",
        "devices",
        "environment",
        "launch",
        "signals",
        "tracking",
        "planning",
        "runs_view",
    ),
    ("training",),
    ("api",),
    ("studies",),
    ("report",),
    ("cli", "cli_report", "cli_study", "reference", "__main__", "__init__"),
)
TORCH_FREE = (
    "errors",
    "seeds",
    "fleet",
    "config",
    "clustering",
    "dealing",
    "speeds",
    "sampling",
    "schedule",
    "metrics",
    "planner",
    "planning",
    "studies",
    "report",
)


def part_of(module: Path) -> str:
    """The top-level module or folder that a file belongs to."""
    return module.relative_to(SOURCE).parts[0].removesuffix(".py")


def imported(module: Path) -> set[str]:
    """Every module imported at any depth of a file, type-checking blocks aside."""
    tree = ast.parse(module.read_text())
    names = set()
    skipped = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if id(node) in skipped:
            continue
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def layer(part: str) -> int:
    return next(i for i, parts in enumerate(LAYERS) if part in parts)


@pytest.mark.parametrize("module", MODULES, ids=lambda m: str(m.relative_to(SOURCE)))
def test_imports_point_one_way(module: Path) -> None:
    own = layer(part_of(module))
    for name in imported(module):
        if name.startswith("gcpsl."):
            other = name.split(".")[1]
            known = any(other in parts for parts in LAYERS)
            assert not known or layer(other) <= own, f"{module.name} imports gcpsl.{other}, which is built on it"


def test_metrics_and_planner_know_no_runtime() -> None:
    for module in MODULES:
        if part_of(module).startswith(("metrics", "planner", "runs", "records")):
            assert not any(name.startswith(("gcpsl.runtimes", "gcpsl.training")) for name in imported(module)), module


def test_what_plans_are_made_of_is_free_of_torch() -> None:
    for module in MODULES:
        if part_of(module) in TORCH_FREE:
            assert not any(name.split(".")[0] == "torch" for name in imported(module)), module


def test_the_layers_are_those_that_the_architecture_page_lists() -> None:
    page = (ROOT / "ARCHITECTURE.md").read_text().partition("\n## Layers\n")[2].partition("\n## ")[0]
    listed = [tuple(re.findall(r"`(\w+)`", line)) for line in page.splitlines() if re.match(r"\d+\. ", line)]
    assert tuple(listed) == LAYERS
    assert {part for parts in LAYERS for part in parts} == {part_of(module) for module in MODULES}


def test_no_file_is_over_400_lines() -> None:
    for folder in ("src", "tests", "benchmarks"):
        for file in (ROOT / folder).rglob("*.py"):
            assert file.read_text().count("\n") <= 400, file


def test_no_function_is_over_60_lines() -> None:
    for module in MODULES:
        for node in ast.walk(ast.parse(module.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                assert (node.end_lineno or 0) - node.lineno < 60, f"{module}: {node.name}"


def test_every_module_says_what_it_promises() -> None:
    for module in MODULES:
        assert ast.get_docstring(ast.parse(module.read_text())), module


def test_nothing_is_unpickled_but_the_published_cifar_files() -> None:
    for module in MODULES:
        uses = {name for name in imported(module) if name.split(".")[0] in ("pickle", "joblib", "cloudpickle")}
        assert not uses or module.name == "cifar.py", module
        assert not re.search(r"torch\.(load|save)\(|allow_pickle=True", module.read_text()), module


OWN_ERRORS = {
    name
    for name, value in vars(errors).items()
    if isinstance(value, type) and issubclass(value, errors.GcpslError) and value is not errors.GcpslError
}
# what is raised to be caught by ourselves, or ends the program as it should
OTHER_RAISES = {
    ("cli.py", "typer.Exit"),
    ("cli_study.py", "typer.Exit"),
    ("config.py", "PydanticCustomError"),
    ("data/cifar.py", "pickle.UnpicklingError"),
    ("data/download.py", "_BrokenError"),
    ("data/download.py", "_FetchError"),
    ("kernels/layers.py", "NotStackable"),
    ("runs.py", "ValueError"),
    ("runtimes/eager.py", "Interrupted"),
    ("runtimes/graphed.py", "Interrupted"),
    ("training.py", "Interrupted"),
}


def raised(node: ast.AST, function: ast.FunctionDef | None = None) -> Iterator[tuple[str, ast.FunctionDef | None]]:
    """What is raised by name anywhere below a node, with the function around it."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Raise) and child.exc is not None:
            yield ast.unparse(child.exc.func if isinstance(child.exc, ast.Call) else child.exc), function
        yield from raised(child, child if isinstance(child, ast.FunctionDef) else function)


def python_asks_for(error: str, function: ast.FunctionDef | None) -> bool:
    """Whether this is what pydantic wants of a validator, or Python of a `__getattr__`."""
    if function is None:
        return False
    validates = any("validator" in ast.unparse(decorator) for decorator in function.decorator_list)
    return (error == "ValueError" and validates) or (error == "AttributeError" and function.name == "__getattr__")


def test_errors_that_users_meet_are_the_projects_own() -> None:
    others = {
        (module.relative_to(SOURCE).as_posix(), error)
        for module in MODULES
        for error, function in raised(ast.parse(module.read_text()))
        if error not in OWN_ERRORS and not python_asks_for(error, function)
    }
    assert others == OTHER_RAISES
