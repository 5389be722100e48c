# SPDX-License-Identifier: Apache-2.0
"""What an export prints, for people and as JSON."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mxtree.edit.plan import Plan, State

_SIGNS: dict[State, str] = {"changed": "~", "new": "+", "removed": "-"}


def print_exports(plans: Sequence[Plan], *, written: bool, as_json: bool) -> None:
    """Print each patch that changed, and what became of the series."""
    if as_json:
        print(json.dumps({"written": written, "upstreams": [_as_json(plan) for plan in plans]}))
        return
    for plan in plans:
        for name, state in plan.states.items():
            if state != "unchanged":
                print(f"{_SIGNS[state]} {plan.upstream}/{plan.directory.name}/{name} ({state})")
        print(f"{plan.upstream}: {_verdict(plan, written=written)}")


def _verdict(plan: Plan, *, written: bool) -> str:
    if plan.is_clean:
        return f"{len(plan.patches)} patches, the series is what the tree holds"
    counts = [f"{len(names)} {state}" for state in _SIGNS if (names := plan.changed(state))]
    if plan.is_reordered:
        counts.append("reordered")
    return f"{', '.join(counts)}; {'written' if written else 'not written: run mxtree export'}"


def _as_json(plan: Plan) -> dict[str, object]:
    return {
        "upstream": plan.upstream,
        "version": plan.directory.name,
        "clean": plan.is_clean,
        "reordered": plan.is_reordered,
        "patches": plan.states,
    }
