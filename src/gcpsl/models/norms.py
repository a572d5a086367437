"""The client's norms: BatchNorm becomes GroupNorm, which looks at one sample at a time.

Running statistics on a client would differ from client to client and tell of its data.
The server keeps its own.
"""

from __future__ import annotations

from typing import cast

from torch import Tensor, nn

from gcpsl.errors import SplitError


def to_group_norm(segment: nn.Module, groups: int) -> None:
    """Replaces, in place, every BatchNorm1d and BatchNorm2d; weights and biases carry over as they are.

    A norm of c channels gets the largest number of groups that is at most `groups` and divides c.
    """
    for name, module in list(segment.named_modules()):
        if type(module) in (nn.BatchNorm1d, nn.BatchNorm2d):
            segment.set_submodule(name, _group_norm(cast(nn.BatchNorm2d, module), groups))
        elif isinstance(getattr(module, "running_mean", None), Tensor):
            raise SplitError(
                f"'{name}' ({type(module).__name__}) is on the client and keeps running statistics, which "
                "clients can't share; only BatchNorm1d and BatchNorm2d are replaced. Use one of these, or "
                "GroupNorm or LayerNorm, or cut before it"
            )


def group_count(channels: int, groups: int) -> int:
    """The largest divisor of `channels` that is at most `groups`."""
    return max(count for count in range(1, min(channels, groups) + 1) if channels % count == 0)


def _group_norm(norm: nn.BatchNorm2d, groups: int) -> nn.GroupNorm:
    count = group_count(norm.num_features, groups)
    replacement = nn.GroupNorm(count, norm.num_features, norm.eps, norm.affine)
    replacement.weight, replacement.bias = norm.weight, norm.bias
    return replacement.train(norm.training)


def refuse_single_values(segment: nn.Module, example: Tensor) -> None:
    """Raises SplitError if a GroupNorm has only one value per group, which it would turn into a constant."""
    lone: list[nn.Module] = []

    def note(module: nn.Module, inputs: tuple[Tensor, ...], _output: Tensor) -> None:
        if inputs[0][0].numel() == cast(nn.GroupNorm, module).num_groups:
            lone.append(module)

    norms = {module: name for name, module in segment.named_modules() if isinstance(module, nn.GroupNorm)}
    handles = [norm.register_forward_hook(note) for norm in norms]
    segment(example)
    for handle in handles:
        handle.remove()
    if lone:
        names = ", ".join(f"'{name}'" for norm, name in norms.items() if norm in lone)
        raise SplitError(
            f"on the client {names} would normalise groups of a single value, which leaves nothing of them; "
            "lower model.groups, or cut before it"
        )
