# SPDX-License-Identifier: Apache-2.0
"""Recipe: all sections of a run in one frozen value."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import StringConstraints

from .base import Section, Texts
from .checkpoint import Checkpoint
from .compilation import Compile
from .data import Data
from .evaluation import Evaluation
from .launch import Launch
from .logs import Logging, MLPerf, Probes
from .model import Model
from .optimizer import Optimizer
from .parallel import Parallel
from .precision import Precision
from .schedule import Schedule

Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")]


class Recipe(Section):
    """One run. What a file does not say has the default written here."""

    name: Name
    """Name of the run and of its folder; the file's name where the file does not say."""
    description: str = ""
    """What the run is for, in one sentence."""
    device: Literal["cpu", "h200", "mi355x"]
    """What it runs on: gloo ranks on a CPU, NVIDIA H200 (MX emulated), or AMD MI355X."""
    launch: Launch = Launch()
    """How the processes start."""
    model: Model
    """What is trained."""
    precision: Precision = Precision()
    """Number formats."""
    data: Data
    """What is read."""
    schedule: Schedule
    """How long and how much at a time."""
    optimizer: Optimizer
    """How parameters change."""
    parallel: Parallel = Parallel()
    """How ranks share the work."""
    checkpoint: Checkpoint = Checkpoint()
    """What is saved."""
    evaluation: Evaluation = Evaluation()
    """When the validation loss is measured."""
    compile: Compile = Compile()
    """torch.compile."""
    logging: Logging = Logging()
    """What is written down."""
    mlperf: MLPerf = MLPerf()
    """MLPerf log."""
    probes: Probes = Probes()
    """Measurements."""
    expect_overridden: Texts = ()
    """Dotted keys that Megatron may change on the way without this being an error."""

    @property
    def world_size(self) -> int:
        """Ranks of the whole run."""
        return self.launch.nproc_per_node * self.launch.nodes


SECTIONS: tuple[str, ...] = tuple(
    name
    for name, field in Recipe.model_fields.items()
    if isinstance(field.annotation, type) and issubclass(field.annotation, Section)
)
"""Names of the sections, in the order of a written recipe."""
