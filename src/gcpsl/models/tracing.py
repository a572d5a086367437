"""The graph of a model's forward around one cut, by torch.fx.

Only the modules that contain the cut are traced through; every other module stays one call, with its own
Python, its hooks and its train/eval behaviour. (torch.export, which torch.distributed.pipelining splits,
bakes that mode in.)
"""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import fx, nn
from typing_extensions import override

from gcpsl.errors import SplitError

_TORCH = str(Path(torch.__file__).parent)


class _Tracer(fx.Tracer):
    """Traces through the modules named in `path`, and reads their `training` when the segment runs."""

    def __init__(self, path: frozenset[str]) -> None:
        super().__init__()
        self._path = path

    @override
    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return module_qualified_name not in self._path

    @override
    def create_args_for_root(
        self, root_fn: Callable[..., Any], is_module: bool, concrete_args: Any = None
    ) -> tuple[Callable[..., Any], list[Any]]:
        """One input; further arguments of the model's forward keep their defaults."""
        name = list(inspect.signature(root_fn).parameters)[1]
        for path in self._path:
            module = self.root.get_submodule(path)
            flag = self.create_proxy("get_attr", f"{path}.training".lstrip("."), (), {})
            module.__dict__["training"] = flag
        return root_fn, [self.root, self.create_proxy("placeholder", name, (), {})]


def trace(model: nn.Module, container: str) -> fx.Graph:
    """The graph in which every direct child of `container` ('' is the model itself) is a single call."""
    parts = container.split(".") if container else []
    path = frozenset(".".join(parts[:depth]) for depth in range(len(parts) + 1))
    modes = {name: model.get_submodule(name).training for name in path}
    try:
        graph = _Tracer(path).trace(model)
    except Exception as error:
        raise SplitError(
            f"can't follow the forward of {_describe(model, path)}: {_cause(error)}; around the cut it must "
            "be free of control flow on tensor values (or on self.training) and take one input. Move such "
            "code into a submodule of its own, or cut at a submodule that doesn't contain it"
        ) from error
    finally:
        for name, mode in modes.items():
            model.get_submodule(name).__dict__["training"] = mode
    for node in list(graph.nodes):
        if node.op == "get_attr" and not node.users:
            graph.erase_node(node)
    return graph


def _describe(model: nn.Module, path: frozenset[str]) -> str:
    inner = sorted(name for name in path if name)
    return type(model).__name__ + (f" and of {', '.join(inner)}" if inner else "")


def _cause(error: Exception) -> str:
    """The error's first line, and the last line of the user's code on the way to it."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if not f.filename.startswith(_TORCH)]
    message = (str(error).strip().splitlines() or [""])[0]
    where = ""
    if frames[1:]:
        where = f", at {Path(frames[-1].filename).name}:{frames[-1].lineno} `{frames[-1].line}`"
    return f"{type(error).__name__}: {message}{where}"
