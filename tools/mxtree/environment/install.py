# SPDX-License-Identifier: Apache-2.0
"""`mxtree install`: put a tree into an environment, editable, and prove that it is in effect."""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.specifiers import SpecifierSet

from mxtree.environment import (
    compiled,
    distributions,
    foreign,
    metadata,
    packages,
    pip,
    proof,
    venv,
    wheels,
)
from mxtree.environment.interpreter import inspect
from mxtree.errors import ExitCode, FatalError
from mxtree.locks import hold
from mxtree.tree.manifest import load_manifest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mxtree.environment.distributions import Distribution
    from mxtree.environment.interpreter import Interpreter
    from mxtree.environment.wheelfile import Wheel

_NO_COMPILED_PARTS = (
    "TransformerEngine's compiled parts are not installed (they are separate packages): importing "
    "transformer_engine, and megatron.core with it, raises without them"
)
_LOCAL_LAYERS = (
    "for Megatron's local layers on a machine without them: "
    "mxtree install --without transformer-engine"
)


@dataclass(frozen=True)
class InstallRequest:
    """What to install where.

    ``python`` is the interpreter of an existing environment; without it a new one is made at
    ``env``, or beside the tree. ``without`` names distributions that are not installed, ``replace``
    foreign ones that may be removed.
    """

    tree: Path
    python: Path | None = None
    env: Path | None = None
    dependencies: packages.Policy = packages.Policy.CHECK
    without: frozenset[str] = frozenset()
    replace: frozenset[str] = frozenset()
    ignore_requires_python: bool = False
    public_version: bool = False


@dataclass(frozen=True)
class InstallResult:
    """What is in effect now: version by distribution, and TransformerEngine's compiled parts."""

    python: Path
    python_version: str
    versions: dict[str, str]
    compiled: tuple[str, ...]
    notes: tuple[str, ...] = field(default=())


def install(request: InstallRequest) -> InstallResult:
    """Install the distributions of ``request.tree`` and return what the environment then says.

    Raises `FatalError` before anything changes when the tree, the interpreter or what is already
    installed does not allow it, and afterwards when the tree is not what would be imported.
    """
    digest = load_manifest(request.tree).digest
    found = [d for d in distributions.of_tree(request.tree) if d.name not in request.without]
    if request.python is not None:
        return _install_into(inspect(request.python), request, found, digest)
    folder = request.env or venv.default_location(request.tree.absolute())
    with hold(folder, timeout_s=1800):
        target = venv.prepare(folder)
        return _install_into(target, request, found, digest)


def _install_into(
    target: Interpreter, request: InstallRequest, found: Sequence[Distribution], digest: str
) -> InstallResult:
    _check_python(target, request, found)
    _check_owner(target)
    removed = foreign.to_remove(target, without=request.without, replace=request.replace)
    if request.python is not None:
        packages.ensure(target, request.dependencies)
    made = [_editable(distribution, request, digest) for distribution in found]
    pip.uninstall(target, removed)
    with tempfile.TemporaryDirectory(prefix="mxtree-wheels-") as folder:
        for wheel in made:
            wheel.write(Path(folder))
        pinned = [f"{wheel.name}=={wheel.version}" for wheel in made]
        pip.install_wheels(target, Path(folder), pinned)
    versions = {wheel.name: wheel.version for wheel in made}
    after = inspect(target.python, proof.modules(found))
    proof.check(after, found, versions)
    if "transformer-engine" not in request.without:
        compiled.check_versions(after)
    parts = tuple(compiled.present(after))
    return InstallResult(
        after.python, after.version, versions, parts, tuple(_notes(request, after))
    )


def _editable(distribution: Distribution, request: InstallRequest, digest: str) -> Wheel:
    version = distribution.version
    if not request.public_version:
        version = metadata.local_version(version, digest)
    return wheels.editable(distribution, version, digest, request.tree.resolve())


def _check_python(
    target: Interpreter, request: InstallRequest, found: Sequence[Distribution]
) -> None:
    refusing = [
        f"{d.name} {d.version} requires Python {d.requires_python}"
        for d in found
        if not SpecifierSet(d.requires_python).contains(target.version)
    ]
    if refusing and not request.ignore_requires_python:
        raise FatalError(
            f"{target.python} is Python {target.version}",
            details=refusing,
            hint="use a Python that all of them accept, or --ignore-requires-python to try it",
            code=ExitCode.USAGE,
        )


def _check_owner(target: Interpreter) -> None:
    if target.externally_managed and not os.environ.get("PIP_BREAK_SYSTEM_PACKAGES"):
        raise FatalError(
            f"{target.python} belongs to the operating system, which forbids pip to install there",
            hint="use a virtual environment; or, in a container that is yours: "
            f"PIP_BREAK_SYSTEM_PACKAGES=1 mxtree install --python {target.python}",
        )


def _notes(request: InstallRequest, target: Interpreter) -> list[str]:
    parts = compiled.present(target)
    if parts or "transformer-engine" in request.without:
        return []
    return [_NO_COMPILED_PARTS, _LOCAL_LAYERS]
