"""A user's own functions are found by import path, and every way to get it wrong is told apart."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import pytest

from gcpsl.errors import ConfigError
from gcpsl.plugins import optional, resolve


def test_an_installed_function_is_found() -> None:
    assert resolve("math:sqrt", "model.name") is math.sqrt


def test_a_method_is_found_by_its_dotted_name() -> None:
    assert resolve("pathlib:Path.cwd", "model.name")() == Path.cwd()


def test_a_module_in_the_current_folder_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    Path("mine_in_this_folder.py").write_text("def answer():\n    return 42\n")
    assert resolve("mine_in_this_folder:answer", "data.name")() == 42


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("no_colon", "write package.module:function"),
        (":function", "write package.module:function"),
        ("module:", "write package.module:function"),
        ("no_such_module_here:f", "no module 'no_such_module_here'"),
        ("json.no_such_part:f", "no module 'json.no_such_part'"),
        ("math:no_such_function", "has no 'no_such_function'"),
        ("math:pi", "must be a function, and is of type float"),
        ("..relative:f", "write package.module:function"),
    ],
)
def test_a_wrong_path_says_what_is_wrong_and_which_setting(path: str, says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        resolve(path, "clustering.rule")
    assert says in str(caught.value)
    assert f"clustering.rule = '{path}'" in str(caught.value)


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("import absent_dependency_of_mine\n", "needs a module that is missing: No module named 'absent_depend"),
        ("from math import nothing_like_that\n", "failed: ImportError: cannot import name"),
        ("def broken(:\n", "failed: SyntaxError: invalid syntax"),
    ],
)
def test_a_module_that_cannot_be_imported_says_why(
    source: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    Path("broken_module_of_mine.py").write_text(source)
    with pytest.raises(ConfigError, match=says):
        resolve("broken_module_of_mine:f", "data.name")


def test_an_optional_library_that_is_missing_says_what_to_install() -> None:
    assert optional("math", "report", "drawing") is math
    with pytest.raises(ConfigError, match=r"drawing needs absent_library.*pip install 'gcpsl\[report\]'"):
        optional("absent_library", "report", "drawing")
