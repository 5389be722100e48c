# SPDX-License-Identifier: Apache-2.0
"""Which code, which recipe and which machine a run was: a chain of SHA-256 digests."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .run_files import RunFiles

#: What makes a run another one, beside its tree and its recipe.
MACHINE = ("device", "world_size", "environment_delta", "versions")


@dataclass(frozen=True)
class Link:
    """One link: what it is of, its own digest, and the chain up to it (None once one lacks)."""

    name: str
    digest: str | None
    chained: str | None
    note: str = ""
    is_broken: bool = False


def chain(run: RunFiles) -> tuple[Link, ...]:
    """Links tree -> overlay -> recipe -> run; each chains the one before it with its own digest.

    The recipe's digest is computed anew: a recipe.yaml that changed after the run breaks the chain.
    """
    record = run.record
    recorded, actual = record.get("recipe_sha256"), run.recipe_sha256
    note, broken = "", False
    if recorded and actual and recorded != actual:
        note, broken = f"recipe.yaml is not the one of the run: recorded {recorded[:12]}", True
    elif actual is None and recorded:
        note = "recorded; recipe.yaml is missing"
    elif not recorded:
        note = "of recipe.yaml as it is now; run.json does not record it"
    parts = [
        ("tree", record.get("tree_digest"), "", False),
        ("overlay", record.get("overlay_digest"), "", False),
        ("recipe", actual or recorded, note, broken),
        ("run", machine_digest(record), ", ".join(MACHINE), False),
    ]
    return _linked(parts)


def machine_digest(record: dict[str, Any]) -> str | None:
    """Digest of device, world size, environment and versions; None when none is recorded."""
    facts = {key: record[key] for key in MACHINE if key in record}
    if not facts:
        return None
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def _linked(parts: list[tuple[str, str | None, str, bool]]) -> tuple[Link, ...]:
    links: list[Link] = []
    before: str | None = ""
    for name, digest, note, broken in parts:
        chained = None
        if before is not None and digest and not broken:
            chained = hashlib.sha256(f"{before}{digest}".encode()).hexdigest()
        links.append(Link(name, digest, chained, note, broken))
        before = chained
    return tuple(links)
