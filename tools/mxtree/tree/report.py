# SPDX-License-Identifier: Apache-2.0
"""What build, verify and status print, for people and as JSON."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING

from mxtree.tree.overview import lines

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from mxtree.tree.build import BuildResult
    from mxtree.tree.overview import PatchOverview
    from mxtree.tree.status import Status
    from mxtree.tree.verify import Difference

#: Lines of one screen that a list may take.
_SCREEN = 20


def print_build(out: Path, result: BuildResult, *, as_json: bool) -> None:
    """Print what a build made and where."""
    manifest = result.manifest
    if as_json:
        print(json.dumps({"tree": str(out), "reused": result.reused} | manifest.model_dump()))
        return
    for name, upstream in manifest.upstreams.items():
        print(f"{name} {upstream.version} ({upstream.tag}, {upstream.source['kind']})")
        for patch in upstream.patches:
            print(f"  {patch.commit[:12]} {patch.id} {patch.title}")
        if not upstream.patches:
            print("  no patches")
    for name, folder in manifest.folders.items():
        print(f"{name}: {len(folder.files)} files")
    state = "already up to date" if result.reused else "built"
    print(f"tree {out} {state}, digest {manifest.digest}")


def print_verification(tree: Path, differences: Sequence[Difference], *, as_json: bool) -> None:
    """Print every difference, or that there is none."""
    if as_json:
        listed = [asdict(item) for item in differences]
        print(json.dumps({"tree": str(tree), "ok": not differences, "differences": listed}))
        return
    for item in differences:
        print(item)
    verdict = f"{len(differences)} differences" if differences else "is what its manifest says"
    print(f"{tree}: {verdict}")


def print_overview(patches: list[PatchOverview], *, as_json: bool) -> None:
    """Print the patches of the pinned series."""
    if as_json:
        print(json.dumps([item.to_json() for item in patches]))
    else:
        print("\n".join(lines(patches)))


def print_status(status: Status, as_json: bool) -> None:
    """Print the one screen of `mxtree status`."""
    if as_json:
        print(json.dumps(asdict(status)))
        return
    for upstream in status.upstreams:
        print(f"{upstream.name} {upstream.version} ({upstream.tag})")
        for title in upstream.patches:
            print(f"  {title}")
        if upstream.problem:
            print(f"  series cannot be read: {upstream.problem}")
    digest = f", digest {status.digest[:12]}" if status.digest else ""
    control = ", without patches" if status.patched is False else ""
    print(f"tree {status.tree}: {status.state}{digest}{control}")
    for reason in status.reasons[:_SCREEN]:
        print(f"  {reason}")
    if len(status.reasons) > _SCREEN:
        print(f"  ... and {len(status.reasons) - _SCREEN} more")
    for line in status.rebases:
        print(line)
    print(f"next: {status.next_command}")
