# SPDX-License-Identifier: Apache-2.0
"""`mxtree wheel`: installable wheels of a tree, named after its digest."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mxtree.environment import distributions, metadata, wheels
from mxtree.errors import ExitCode, FatalError
from mxtree.tree.manifest import load_manifest
from mxtree.tree.verify import verify

if TYPE_CHECKING:
    from pathlib import Path

#: What upstream's wheel of megatron-core has and a pure-Python one cannot have.
LEFT_OUT = (
    "megatron.core.datasets.helpers_cpp (the compiled helper of the GPT datasets) is not in it"
)


@dataclass(frozen=True)
class BuiltWheel:
    """One wheel on disk; ``sha256`` in hex."""

    name: str
    version: str
    path: Path
    sha256: str
    size: int


def build_wheels(
    tree: Path, out: Path, *, allow_modified: bool = False, public_version: bool = False
) -> list[BuiltWheel]:
    """Write one wheel for each distribution of ``tree`` into ``out`` and return them.

    The same tree gives the same bytes on every machine. Raises `FatalError` when the tree differs
    from its manifest, unless ``allow_modified``; then the version says ``.modified``. With
    ``public_version`` versions are upstream's own, for TransformerEngine's compiled parts.
    """
    digest = load_manifest(tree).digest
    modified = _is_modified(tree, allow_modified=allow_modified)
    if modified and public_version:
        raise FatalError(
            "a modified tree cannot have upstream's own version",
            hint="leave out --public-version, or build the tree again",
        )
    built = []
    for distribution in distributions.of_tree(tree):
        version = metadata.local_version(distribution.version, digest, modified=modified)
        if public_version:
            version = distribution.version
        wheel = wheels.regular(distribution, version, digest)
        path = wheel.write(out)
        data = path.read_bytes()
        sha256 = hashlib.sha256(data).hexdigest()
        built.append(BuiltWheel(wheel.name, wheel.version, path, sha256, len(data)))
    return built


def _is_modified(tree: Path, *, allow_modified: bool) -> bool:
    differences = verify(tree)
    if differences and not allow_modified:
        shown = [str(difference) for difference in differences[:10]]
        more = len(differences) - len(shown)
        raise FatalError(
            f"{tree} differs from its manifest in {len(differences)} places",
            details=shown + ([f"... and {more} more"] if more else []),
            hint=f"make it again: mxtree build --out {tree}; or take it as it is: "
            "mxtree wheel --allow-modified",
            code=ExitCode.CHECK_FAILED,
        )
    return bool(differences)
