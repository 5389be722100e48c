# SPDX-License-Identifier: Apache-2.0
"""What a check found, for people and for machines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .check_sample import Findings

SHOWN = 50


def as_json(found: Findings) -> dict[str, Any]:
    """Plain values."""
    return {
        "path": found.path,
        "encoding": found.encoding,
        "vae_latent_mode": found.vae_latent_mode,
        "shape": None if found.shape is None else vars(found.shape),
        "samples": found.samples,
        "shards": found.shards,
        "dtypes": sorted(found.dtypes),
        "timesteps": {split: dict(sorted(c.items())) for split, c in found.timesteps.items()},
        "problems": found.problems,
    }


def as_text(found: Findings) -> str:
    """A screen of text; problems beyond the first 50 are counted."""
    split = ", ".join(f"{name} {count}" for name, count in found.samples.items())
    lines = [
        (
            f"{found.path}: {found.encoding}, {found.vae_latent_mode}, {found.shards} shards, "
            f"samples: {split}"
        ),
        f"sizes: {found.shape}" if found.shape else "sizes: no whole sample tells them",
        f"dtypes: {', '.join(sorted(found.dtypes)) or 'none'}",
    ]
    lines += [
        f"timesteps of {name}: " + ", ".join(f"{k}: {n}" for k, n in sorted(counter.items()))
        for name, counter in found.timesteps.items()
    ]
    lines += found.problems[:SHOWN]
    if len(found.problems) > SHOWN:
        lines.append(f"... and {len(found.problems) - SHOWN} more")
    lines.append(f"{len(found.problems)} problem(s)" if found.problems else "no problem")
    return "\n".join(lines)
