"""Cutting a model in two at a named submodule.

Built on torch.fx, because it leaves whole modules in the graph and so their parameters, names and train/eval
mode; the nodes of either side are copied into a GraphModule of their own (fx's split_module would rename the
parameters).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from operator import getitem
from typing import cast

import torch
from torch import Tensor, fx, nn

from gcpsl.errors import SplitError, nearest
from gcpsl.models.tracing import trace


@dataclass(frozen=True)
class Segments:
    """The two sides of a cut. They share the model's parameters and keep its names for them.

    What the model's forward never uses is on neither.
    """

    client: nn.Module
    server: nn.Module


def split(model: nn.Module, at: str, example: Tensor | None = None) -> Segments:
    """Cuts at the input of submodule `at`: what it needs is the client, it and all the rest the server.

    Client then server computes what the model computes, bit for bit. Raises SplitError where that can't be
    had with one tensor crossing. An `example` batch, run in eval mode, tries the cut: that tensor must have
    the samples along its first dimension, and the server must not change it in place. Knows nothing of
    norms or of who trains which side.
    """
    if at not in dict(model.named_modules()) or not at:
        valid = cuts(model, example)
        hint = nearest(at, valid) if valid else "it has no valid cut"
        raise SplitError(f"the model has no submodule '{at}' to cut at: {hint}")
    result = _attempt(model, trace(model, _container(at)), at, example)
    if isinstance(result, str):
        raise SplitError(f"can't cut at '{at}': {result} (valid cuts: {', '.join(cuts(model, example)) or 'none'})")
    return result


def cuts(model: nn.Module, example: Tensor | None = None) -> list[str]:
    """Every name that `split` accepts, in the order of the model's submodules."""
    valid = []
    graphs: dict[str, fx.Graph | None] = {}
    for at, _ in model.named_modules():
        container = _container(at)
        if container not in graphs:
            graphs[container] = _trace_or_none(model, container)
        graph = graphs[container]
        if at and graph is not None and isinstance(_attempt(model, graph, at, example), Segments):
            valid.append(at)
    return valid


def _container(at: str) -> str:
    return at.rpartition(".")[0]


def _trace_or_none(model: nn.Module, container: str) -> fx.Graph | None:
    """None where the container's forward can't be followed: nothing in it is a cut."""
    try:
        return trace(model, container)
    except SplitError:
        return None


def _attempt(model: nn.Module, graph: fx.Graph, at: str, example: Tensor | None) -> Segments | str:
    """The segments, or why there are none."""
    calls = [node for node in graph.nodes if node.op == "call_module" and node.target == at]
    if len(calls) != 1:
        times = f"called {len(calls)} times" if calls else "never called as a module"
        return f"it is {times} in the model's forward; a cut needs exactly one call"
    batch = _batch_sizes(graph)
    clients = _needed_by(calls[0]).union(*(_ancestors(node) for node in batch))
    crossing = [
        node
        for node in graph.nodes
        if node in clients and node.op != "get_attr" and node not in batch
        if any(user not in clients for user in node.users)
    ]
    if len(crossing) != 1:
        return f"{len(crossing)} values cross the cut, and one must: " + ", ".join(_name(node) for node in crossing)
    if crossing[0].op == "placeholder":
        return "nothing but the model's input precedes it, so the client would be empty"
    segments = _extract(model, graph, clients, batch, crossing[0])
    problem = _ownership(model, segments)
    if problem is None and example is not None:
        problem = _trial(segments, example)
    return problem or segments


def _needed_by(call: fx.Node) -> set[fx.Node]:
    """All that the call's value depends on, and whatever else concerns only that (assertions, say)."""
    needed = _ancestors(call) - {call}
    output = next(iter(reversed(call.graph.nodes)))
    useful = _ancestors(output)
    for node in call.graph.nodes:
        if node not in useful and node.all_input_nodes and all(i in needed for i in node.all_input_nodes):
            needed.add(node)
    return needed


def _ancestors(node: fx.Node) -> set[fx.Node]:
    found: set[fx.Node] = set()
    frontier = [node]
    while frontier:
        node = frontier.pop()
        if node not in found:
            found.add(node)
            frontier.extend(node.all_input_nodes)
    return found


def _batch_sizes(graph: fx.Graph) -> set[fx.Node]:
    """The nodes that read the number of samples off the model's input; the server reads it off its own."""
    found: set[fx.Node] = set()
    images = next(node for node in graph.nodes if node.op == "placeholder")
    for user in images.users:
        if user.target == "size" and user.args[1:] == (0,):
            found.add(user)
        elif user.args in ((images,), (images, "shape")) and user.target in ("size", getattr):
            found.update(item for item in user.users if item.target is getitem and item.args[1] == 0)
    return found


def _name(node: fx.Node) -> str:
    if node.op == "placeholder":
        return f"the input '{node.target}'"
    if node.op == "call_module":
        return f"the output of '{node.target}'"
    return f"the result '{node.name}' of {getattr(node.target, '__name__', node.target)}()"


def _extract(model: nn.Module, graph: fx.Graph, clients: set[fx.Node], batch: set[fx.Node], cut: fx.Node) -> Segments:
    client = fx.Graph()
    _copy(client, (node for node in graph.nodes if node in clients), {})
    copies = {node.name: node for node in client.nodes}
    client.output(copies[cut.name])
    server = fx.Graph()
    activation = server.placeholder("activation")
    values = {cut: activation}
    if any(user not in clients for node in batch for user in node.users):
        values.update(dict.fromkeys(batch, server.call_method("size", (activation, 0))))
    rest = (node for node in graph.nodes if node not in clients and node not in values)
    _copy(server, rest, values)
    return Segments(fx.GraphModule(model, client, "Client"), fx.GraphModule(model, server, "Server"))


def _copy(target: fx.Graph, nodes: Iterable[fx.Node], values: dict[fx.Node, fx.Node]) -> None:
    """Copies nodes in order. An attribute of the model that the other side has read is read anew."""

    def value(node: fx.Node) -> fx.Node:
        if node not in values:
            assert node.op == "get_attr"
            values[node] = target.node_copy(node)
        return values[node]

    for node in nodes:
        if node not in values:
            values[node] = target.node_copy(node, value)


def _ownership(model: nn.Module, segments: Segments) -> str | None:
    """Why the two sides can't be trained apart, if so."""
    names = {
        id(tensor): name for tensors in (model.named_parameters, model.named_buffers) for name, tensor in tensors()
    }
    client, server = (_trained(segment) for segment in (segments.client, segments.server))
    shared = sorted(names[key] for key in client & server)
    if shared:
        return f"both sides would use the same parameters or statistics: {', '.join(shared)}"
    for side, segment in (("client", segments.client), ("server", segments.server)):
        if not any(True for _ in segment.parameters()):
            return f"the {side} would have no parameters to train"
    return None


def _trained(segment: nn.Module) -> set[int]:
    """Parameters, and the buffers of modules; a constant that forward reads directly may be on both sides."""
    graph = cast(fx.GraphModule, segment).graph
    called = [segment.get_submodule(str(node.target)) for node in graph.nodes if node.op == "call_module"]
    buffers: Iterator[Tensor] = (buffer for module in called for buffer in module.buffers())
    return {id(tensor) for tensor in (*segment.parameters(), *buffers)}


def _trial(segments: Segments, example: Tensor) -> str | None:
    """What an example batch shows to be wrong with the cut, if anything."""
    with evaluating(segments.client, segments.server), torch.no_grad():
        activation = segments.client(example)
        if not isinstance(activation, Tensor):
            return f"a {type(activation).__name__} crosses the cut, not one tensor"
        if not activation.is_floating_point():
            return f"a tensor of {activation.dtype} crosses the cut, through which no gradient can return"
        if activation.shape[:1] != example.shape[:1]:
            return (
                f"{len(example)} samples cross the cut as a tensor of {tuple(activation.shape)}, "
                "whose first dimension is not the samples"
            )
        version = activation._version
        segments.server(activation)
        if activation._version != version:
            return "the server would change the activations in place; use the operation's out-of-place form"
    return None


@contextmanager
def evaluating(*segments: nn.Module) -> Iterator[None]:
    """Everything in eval mode for a while, and then each module back in its own."""
    modes = {module: module.training for segment in segments for module in segment.modules()}
    try:
        for segment in segments:
            segment.eval()
        yield
    finally:
        for module, mode in modes.items():
            module.training = mode
