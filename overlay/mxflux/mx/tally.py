# SPDX-License-Identifier: Apache-2.0
"""What really ran: quantizations and GEMMs counted per module, direction, format and backend."""

from __future__ import annotations

import contextlib
from collections import Counter
from typing import TYPE_CHECKING

import torch

from mxflux.mx.errors import MXError, PrecisionError
from mxflux.mx.formats import FORMATS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

DIRECTIONS = ("fprop", "dgrad", "wgrad")
UNNAMED = "<unnamed>"

_active: Census | None = None
_names: list[str] = []
_indices: dict[str, int] = {}


def is_mx(formats: str) -> bool:
    """Whether every operand of a recorded GEMM was in an MX element format."""
    return all(part in FORMATS for part in formats.split("/"))


class Census:
    """Counts of one `census()` block.

    quantizations: (module, role, format, packer) -> count, role being input, weight or grad_output
    with `:row`, `:column` or `:dual`. gemms: (module, direction, formats, backend) -> count.
    """

    def __init__(self, expected: Iterable[str] = ()) -> None:
        self.expected = tuple(expected)
        self.quantizations: Counter[tuple[str, str, str, str]] = Counter()
        self.gemms: Counter[tuple[str, str, str, str]] = Counter()

    def quantized(self, module: str, role: str, fmt: str, packer: str) -> None:
        """Count one quantization."""
        self.quantizations[module, role, fmt, packer] += 1

    def multiplied(self, module: str, direction: str, formats: str, backend: str) -> None:
        """Count one GEMM."""
        self.gemms[module, direction, formats, backend] += 1

    def total_gemms(self) -> int:
        """GEMMs with both operands in an MX format, all modules and directions."""
        return sum(n for (_, _, formats, _), n in self.gemms.items() if is_mx(formats))

    def table(self) -> str:
        """A Markdown table, one line a module and GEMM direction, then one a quantization."""
        lines = ["| module | what | format | by | count |", "|---|---|---|---|---:|"]
        for counts in (self.gemms, self.quantizations):
            lines += [f"| {' | '.join(key)} | {n} |" for key, n in sorted(counts.items())]
        return "\n".join(lines)

    def check(
        self,
        expected: Iterable[str] | None = None,
        directions: Iterable[str] = DIRECTIONS,
        formats: Iterable[str] | None = None,
    ) -> None:
        """Raise PrecisionError naming every expected module that missed a direction.

        expected: module names; default those found when the census was opened. formats: accepted
        texts such as "e2m1" or "bf16"; default MX formats only, which a hybrid plan does not meet
        in its backward. Expecting nothing is an error: no linear found proves nothing.
        """
        names = self.expected if expected is None else tuple(expected)
        if not names:
            raise PrecisionError("census: no linear was expected to run in MX; is the model bare?")
        accepted = None if formats is None else set(formats)
        seen = {
            (module, direction)
            for module, direction, text, _ in self.gemms
            if (is_mx(text) if accepted is None else text in accepted)
        }
        wanted = tuple(directions)
        gaps = {n: [d for d in wanted if (n, d) not in seen] for n in names}
        missing = [f"  {n}: {', '.join(d)}" for n, d in gaps.items() if d]
        if missing:
            raise PrecisionError(
                f"census: {len(missing)} of {len(names)} linears did not run in MX:\n"
                + "\n".join(missing)
            )


def active() -> Census | None:
    """The census that is open, if any."""
    return _active


def site_named(name: str) -> torch.Tensor:
    """A CPU int64 scalar that stands for `name` in operator calls.

    A tensor, because a string or an int would be a constant of the compiled graph and so compile
    every layer anew.
    """
    index = _indices.setdefault(name, len(_names))
    if index == len(_names):
        _names.append(name)
    return torch.tensor(index, dtype=torch.int64)


def _name(site: torch.Tensor) -> str:
    index = int(site)
    return _names[index] if 0 <= index < len(_names) else UNNAMED


def record_quantize(site: torch.Tensor, role: str, fmt: str, packer: str) -> None:
    """Count a quantization of the module behind `site`, if a census is open."""
    if _active is not None:
        _active.quantized(_name(site), role, fmt, packer)


def record_gemm(site: torch.Tensor, direction: str, formats: str, backend: str) -> None:
    """Count a GEMM of the module behind `site`, if a census is open."""
    if _active is not None:
        _active.multiplied(_name(site), direction, formats, backend)


@contextlib.contextmanager
def census(model: torch.nn.Module | None = None) -> Iterator[Census]:
    """Count inside the block. Modules of `model` with an attribute `mx_site` are expected to run.

    Outside the block `mx_site` is None and nothing is counted, looked up or stored.
    """
    global _active  # noqa: PLW0603 - one census a process: operators cannot carry an object
    if _active is not None:
        raise MXError("a census is open already; close it first")
    modules = {} if model is None else dict(model.named_modules())
    sites = {name: m for name, m in modules.items() if hasattr(m, "mx_site")}
    opened = _active = Census(sites)
    for name, module in sites.items():
        module.mx_site = site_named(name)
    try:
        yield opened
    finally:
        _active = None
        for module in sites.values():
            module.mx_site = None
