# SPDX-License-Identifier: Apache-2.0
"""What was asked of `mxtree run`, and the overrides that follow from its options."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from mxtree.errors import FatalError


@dataclass(frozen=True)
class RunRequest:
    """One command line of `mxtree run`."""

    recipe: str
    overrides: tuple[str, ...] = ()
    nproc: int | None = None
    nodes: int | None = None
    run_dir: Path | None = None
    max_steps: int | None = None
    max_restarts: int | None = None
    fake_world: int | None = None
    dry_run: bool = False
    slurm: bool = False
    submit: bool = False
    resume: bool = False
    fresh: bool = False
    allow_modified: bool = False
    python: Path | None = None
    tree: Path | None = None
    as_json: bool = False

    def check(self) -> None:
        """Raise `FatalError` for options that contradict each other."""
        contradictions = [
            (self.resume and self.fresh, "--resume goes on, --fresh starts anew: use one"),
            (self.submit and not self.slurm, "--submit sends what --slurm writes: use both"),
            (self.submit and self.dry_run, "--submit starts something, --dry-run nothing: use one"),
            (bool(self.fake_world) and self.slurm, "--fake-world is one process: no --slurm"),
            (self.as_json and not self.dry_run, "--json shows a plan: use it with --dry-run"),
            ((self.nodes or 1) > 1 and not self.slurm and not self.dry_run, MANY_NODES),
        ]
        for is_one, message in contradictions:
            if is_one:
                raise FatalError(message)

    def all_overrides(self) -> list[str]:
        """Return what goes on top of the recipe; an option of its own wins over ``a.b=value``.

        What --max-steps stops is saved, also where the recipe itself saves nothing at its end.
        """
        options = {
            "launch.nproc_per_node": self.nproc,
            "launch.nodes": self.nodes,
            "launch.max_restarts": self.max_restarts,
            "schedule.exit_interval": self.max_steps,
            "checkpoint.save_final": None if self.max_steps is None else "true",
        }
        named = [f"{key}={value}" for key, value in options.items() if value is not None]
        for override in self.overrides:
            key = override.partition("=")[0]
            if options.get(key) is not None:
                raise FatalError(f"{key} is given twice: as {override} and by its own option")
        return [*self.overrides, *named]


#: Refused from the command line before anything else, and from a recipe once it is read.
MANY_NODES = "--nodes above 1 needs Slurm: add --slurm (it writes the script, --submit sends it)"
