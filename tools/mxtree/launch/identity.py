# SPDX-License-Identifier: Apache-2.0
"""Which code a run would run: the tree, the environment it is installed in, and their agreement."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from mxtree import __version__
from mxtree.environment.modules import Installed, find_python, installed
from mxtree.environment.overlay import use_overlay
from mxtree.errors import ExitCode, FatalError
from mxtree.tree.files import digest, scan
from mxtree.tree.manifest import MANIFEST_NAME, load_manifest
from mxtree.tree.verify import verify

if TYPE_CHECKING:
    from mxtree.launch.request import RunRequest
    from mxtree.project import Project
    from mxtree.tree.manifest import Manifest

_NEEDS = ("mxflux.recipe.launch.plan", "mxflux.recipe.memory")


@dataclass(frozen=True)
class Code:
    """The tree that plans and runs. Without ``manifest`` there is no tree: only a dry run may."""

    tree: Path
    manifest: Manifest | None
    notes: tuple[str, ...] = ()

    @property
    def digest(self) -> str | None:
        """Return the tree's digest."""
        return self.manifest.digest if self.manifest else None


def choose(project: Project, request: RunRequest) -> Code:
    """Return the code for ``request`` and make its recipes and launch importable here."""
    tree = (request.tree or project.default_tree).absolute()
    if not (tree / MANIFEST_NAME).is_file():
        if not request.dry_run:
            raise FatalError(
                f"there is no tree at {tree}", hint="./mxtree build && ./mxtree install"
            )
        use_overlay(project.overlay, *_NEEDS)
        return Code(tree, None, (f"there is no tree at {tree}: planned with overlay/",))
    manifest = load_manifest(tree)
    use_overlay(tree / "overlay", *_NEEDS)
    return Code(tree, manifest, tuple(_stale(project, manifest)))


def _stale(project: Project, manifest: Manifest) -> list[str]:
    """Say when the checkout's overlay is not the tree's: an edit there would not be in effect."""
    built = manifest.folders.get("overlay")
    if built is None or not project.overlay.is_dir():
        return []
    if digest(scan(project.overlay)) == built.digest:
        return []
    return ["overlay/ differs from the tree's copy, and the copy runs: ./mxtree build takes it in"]


def environment_of(code: Code, request: RunRequest) -> Installed:
    """Return what the environment of the ranks has.

    Raises `FatalError` unless the tree is as its manifest says and is what is installed there.
    """
    python = find_python(code.tree, request.python)
    found = installed(python)
    if found.digest != code.digest:
        raise FatalError(
            f"{python} has the tree {found.digest[:12]} installed, {code.tree} is "
            f"{str(code.digest)[:12]}",
            hint=f"./mxtree install {code.tree}"
            + (f" --python {request.python}" if request.python else ""),
        )
    _check_unmodified(code.tree, allowed=request.allow_modified)
    return found


def _check_unmodified(tree: Path, *, allowed: bool) -> None:
    differences = [] if allowed else verify(tree)
    if differences:
        raise FatalError(
            f"{tree} differs from its manifest in {len(differences)} places: the run could not "
            "say which code it ran",
            details=[str(difference) for difference in differences[:10]],
            hint="make patches of the changes (mxtree export) and build; or try them out with "
            "--allow-modified",
            code=ExitCode.CHECK_FAILED,
        )


def record(code: Code, found: Installed, *, allow_modified: bool) -> dict[str, object]:
    """Return the part of run.json that names the code."""
    folders = code.manifest.folders if code.manifest else {}
    overlay = folders.get("overlay")
    upstreams = code.manifest.upstreams if code.manifest else {}
    return {
        "tree_digest": code.digest,
        "overlay_digest": overlay.digest if overlay else None,
        "tree_modified": bool(verify(code.tree)) if allow_modified else False,
        "patches": {
            name: [f"{patch.id} {patch.digest}" for patch in upstream.patches]
            for name, upstream in upstreams.items()
        },
        "mxtree_version": __version__,
        "versions": found.versions,
    }
