# SPDX-License-Identifier: Apache-2.0
"""Manifest entries made from what the engine applied."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mxtree.tree.manifest import PatchRecord, UpstreamRecord

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mxtree.engine import Applied
    from mxtree.upstreams import Imported


def base_record(imported: Imported) -> UpstreamRecord:
    """Return the entry of an upstream without patches."""
    return UpstreamRecord(
        version=imported.version,
        tag=imported.tag,
        source=dict(imported.source),
        base_commit=imported.commit,
        base_tree=imported.tree,
        head_commit=imported.commit,
        head_tree=imported.tree,
        patches=(),
    )


def upstream_record(base: UpstreamRecord, applied: Sequence[Applied]) -> UpstreamRecord:
    """Return the entry of the same upstream with these patches on top."""
    head = applied[-1] if applied else None
    return base.model_copy(
        update={
            "head_commit": head.commit if head else base.base_commit,
            "head_tree": head.tree if head else base.base_tree,
            "patches": tuple(_patch_record(item) for item in applied),
        }
    )


def _patch_record(applied: Applied) -> PatchRecord:
    patch = applied.patch
    return PatchRecord(
        id=patch.id,
        name=patch.name,
        title=patch.subject,
        digest=patch.digest,
        commit=applied.commit,
    )
