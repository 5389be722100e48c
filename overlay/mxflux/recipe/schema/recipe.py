# SPDX-License-Identifier: Apache-2.0
"""Recipe: all sections of a run in one frozen value."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import StringConstraints, ValidationInfo, model_validator
from typing_extensions import Self

from mxflux.flux.architecture import PRESETS, FluxArchitecture

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

if TYPE_CHECKING:
    from collections.abc import Mapping

ARCHITECTURE_KEYS = tuple(field.name for field in fields(FluxArchitecture))
"""Keys of `model` that are sizes: null means the preset's."""
Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")]


def build_architecture(preset: str, sizes: Mapping[str, Any]) -> FluxArchitecture:
    """``preset`` with every size that is not None; ValueError where they make no model.

    Without one of its own, ffn_hidden_size follows another hidden_size, and out_channels another
    in_channels.
    """
    given = {name: value for name, value in sizes.items() if value is not None}
    if "hidden_size" in given:
        given.setdefault("ffn_hidden_size", 4 * given["hidden_size"])
    if "in_channels" in given:
        given.setdefault("out_channels", given["in_channels"])
    return replace(PRESETS[preset], **given)


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

    @model_validator(mode="after")
    def _check_rules(self, info: ValidationInfo) -> Self:
        """Rules between keys; a loader runs them itself, to know where each key stands."""
        from mxflux.recipe.rules import UNCHECKED, find_problems

        problems = [] if info.context is UNCHECKED else find_problems(self)
        if problems:
            raise ValueError("\n".join(map(str, problems)))
        return self

    def dump_resolved(self) -> bytes:
        """Every key with its value as YAML that loads to this recipe, byte for byte."""
        from mxflux.recipe.dump import dump

        return dump(self)

    @property
    def architecture(self) -> FluxArchitecture:
        """The preset with the sizes that the recipe gives."""
        sizes = {name: getattr(self.model, name) for name in ARCHITECTURE_KEYS}
        return build_architecture(self.model.preset, sizes)

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
