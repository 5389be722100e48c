# SPDX-License-Identifier: Apache-2.0
"""Any layout seen through the native names, one link at a time."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

import torch

from .errors import CheckpointError
from .layouts import bfl_links, diffusers_links, native_links
from .safetensors_file import TensorInfo

if TYPE_CHECKING:
    from torch import Tensor

    from mxflux.flux.architecture import FluxArchitecture

    from .links import Link
    from .sources import Checkpoint

_CACHED_LINKS = 4
_NOT_FINITE_CHECKED = (torch.float8_e4m3fn, torch.float8_e5m2)


def layout_links(layout: str, architecture: FluxArchitecture) -> list[Link]:
    """Links of a layout by name; "mxflux" and "megatron" use the native names."""
    builders = {"diffusers": diffusers_links, "bfl": bfl_links}
    return builders.get(layout, native_links)(architecture)


class NativeView:
    """Native tensors of a checkpoint, computed from at most a few stored ones at a time.

    Raises CheckpointError with the complete list when stored and expected tensors differ.
    """

    def __init__(self, checkpoint: Checkpoint, *, allow_nan: bool = False) -> None:
        self._checkpoint = checkpoint
        self._allow_nan = allow_nan
        self._links: dict[str, Link] = {}
        self._cache: OrderedDict[Link, dict[str, Tensor]] = OrderedDict()
        self.tensors: dict[str, TensorInfo] = {}
        shapes = checkpoint.architecture.parameter_shapes()
        links = layout_links(checkpoint.layout, checkpoint.architecture)
        _check_stored(checkpoint, links)
        for link in links:
            dtype = checkpoint.source.tensors[link.foreign[0]].dtype
            for name in link.native:
                self._links[name] = link
                self.tensors[name] = TensorInfo(shapes[name], dtype)

    def load(self, name: str) -> Tensor:
        """One native tensor.

        Raises CheckpointError when it has a NaN or an infinity, unless they are allowed.
        """
        link = self._links[name]
        if link not in self._cache:
            stored = tuple(self._load_finite(foreign) for foreign in link.foreign)
            self._cache[link] = dict(zip(link.native, link.to_native(stored), strict=True))
            if len(self._cache) > _CACHED_LINKS:
                self._cache.popitem(last=False)
        return self._cache[link][name]

    def _load_finite(self, name: str) -> Tensor:
        tensor = self._checkpoint.source.load(name)
        if self._allow_nan:
            return tensor
        values = tensor.float() if tensor.dtype in _NOT_FINITE_CHECKED else tensor
        if not torch.isfinite(values).all():
            count = int((~torch.isfinite(values)).sum())
            raise CheckpointError(
                f"{self._checkpoint.path}: tensor {name}: {count} of {values.numel()} values are "
                "NaN or infinite"
            )
        return tensor


def _check_stored(checkpoint: Checkpoint, links: list[Link]) -> None:
    shapes = checkpoint.architecture.parameter_shapes()
    stored = checkpoint.source.tensors
    expected: dict[str, tuple[int, ...]] = {}
    problems: list[str] = []
    for link in links:
        expected.update(link.foreign_shapes(shapes))
        dtypes = {str(stored[name].dtype) for name in link.foreign if name in stored}
        if len(dtypes) > 1:
            problems.append(f"mixed dtypes {sorted(dtypes)}: {', '.join(link.foreign)}")
    problems += [f"missing: {name} {expected[name]}" for name in expected if name not in stored]
    problems += [
        f"unexpected: {name} {info.shape}" for name, info in stored.items() if name not in expected
    ]
    problems += [
        f"shape: {name} is {info.shape}, expected {expected[name]}"
        for name, info in stored.items()
        if name in expected and info.shape != expected[name]
    ]
    if problems:
        raise CheckpointError(
            f"{checkpoint.path}: not the {checkpoint.layout} form of this architecture, "
            f"{len(problems)} problem(s):",
            problems,
        )
