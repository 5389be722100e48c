# SPDX-License-Identifier: Apache-2.0
"""LaunchPlan: everything that a launch would do, known before anything is done."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mxflux.recipe.launch import argv, batch, environment
from mxflux.recipe.launch.rundir import recipe_sha256

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mxflux.recipe import Loaded
    from mxflux.recipe.launch.batch import Batch
    from mxflux.recipe.launch.environment import EnvironmentPlan


@dataclass(frozen=True)
class LaunchPlan:
    """One launch. ``problems`` do not let it start; ``fake_world`` ranks are only imagined."""

    loaded: Loaded
    run: Path
    python: str
    world_size: int
    fake_world: int | None
    environment: EnvironmentPlan
    batch: Batch

    @property
    def problems(self) -> tuple[str, ...]:
        """Return what is wrong, all of it."""
        return (*self.environment.problems, *self.batch.problems)

    @property
    def first_logs(self) -> Path:
        """Return the logs that the plan is shown for."""
        return self.run / "logs" / "attempt-1"

    def argv(self, logs: Path, *, head: str = "HEAD", job: str = "JOB") -> list[str]:
        """Return the command of the attempt whose logs are in ``logs``.

        ``head`` and ``job`` are the first node and the job id, known once a job of many nodes runs.
        """
        recipe = self.loaded.recipe
        if recipe.launch.nodes > 1 and not self.fake_world:
            return argv.many_nodes(
                self.python, recipe, self.run, logs, head=head, job=job, stop_s=600
            )
        return argv.one_node(self.python, recipe, self.run, logs, fake_world=self.fake_world)

    def to_json(self) -> dict[str, Any]:
        """Return the machine form."""
        recipe = self.loaded.recipe
        return {
            "name": recipe.name,
            "device": recipe.device,
            "recipe_sha256": recipe_sha256(self.loaded),
            "argv": self.argv(self.first_logs),
            "environment": self.environment.to_json(),
            "paths": {key: str(path) for key, path in self.paths().items()},
            "world_size": self.world_size,
            "fake_world": self.fake_world,
            "batch": self.batch.to_json(),
            "problems": list(self.problems),
        }

    def paths(self) -> dict[str, Path]:
        """Return where everything of the run goes, by what it is."""
        names = {
            "recipe": "recipe.yaml",
            "record": "run.json",
            "metrics": "metrics.jsonl",
            "checkpoints": "checkpoints",
            "logs": "logs/attempt-1/rank-N.log",
        }
        return {"run": self.run, **{key: self.run / name for key, name in names.items()}}


def make_plan(
    loaded: Loaded,
    run: Path,
    python: str,
    inherited: Mapping[str, str],
    *,
    fake_world: int | None = None,
) -> LaunchPlan:
    """Return the plan for ``loaded`` in ``run`` (absolute) with the interpreter ``python``."""
    recipe = loaded.recipe
    world_size = fake_world or recipe.world_size
    return LaunchPlan(
        loaded=loaded,
        run=run,
        python=python,
        world_size=world_size,
        fake_world=fake_world,
        environment=environment.plan(recipe, inherited),
        batch=batch.of(recipe, world_size),
    )
