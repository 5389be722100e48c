# SPDX-License-Identifier: Apache-2.0
"""Resuming a run from a training checkpoint, or refusing to with every reason at once."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from megatron.core import parallel_state

from mxflux.training.optimizer_state import allocate_adam_state, load_optimizer_state

from . import random_states
from .distributed import load_checkpoint
from .errors import CheckpointError
from .hyperparameters import adopt_ranges, group_values, reapply_group_values, resume_schedule
from .locate import locate
from .manifest import MANIFEST_NAME, read_manifest
from .model_state import load_model_state
from .parts import Loaded, ReshardableLoader, TrainingParts
from .sources import architecture_from_json
from .together import everywhere, raise_together
from .torch_dist import LOADER_STATE, RANDOM_STATE
from .training_record import TrainingRecord, record_from_json, release
from .training_state import (
    current_layout,
    every_loader,
    held_by,
    loader_object,
    random_object,
    training_state,
    unwrapped,
    versions,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from megatron.core.optimizer import MegatronOptimizer

    from .sharded import StateDict

logger = logging.getLogger(__name__)

_ALL_LOADERS = "loader_states"


def load_training_checkpoint(
    path: Path | str,
    parts: TrainingParts,
    *,
    recipe_sha256: str | None = None,
    reseeds_every_step: bool = False,
    model_only: bool = False,
    verify_files: bool = True,
) -> Loaded:
    """Restore ``parts`` and the generators of this process so that training continues.

    Called on every rank. ``path`` is a run directory, its `latest`, a folder of checkpoints or
    one of them. Another data-parallel size is possible when the loader can continue under it
    (ReshardableLoader) and every step reseeds its generators (``reseeds_every_step``: the saved
    ones belong to ranks that are no more). Another tensor- or context-parallel size needs an
    optimizer saved as fully_reshardable, too.
    ``model_only`` starts anew from the weights: nothing else is read, any size will do.
    ``recipe_sha256`` of another recipe is noted, not refused; the learning rate, decay and Adam
    constants of this run are in effect, and noted where they differ.
    Raises CheckpointError on every rank, with every reason, before anything is restored.
    """
    folder: Path = everywhere(lambda: locate(path))
    record = everywhere(lambda: _record(folder, parts, model_only))
    plan = _Plan(parts, record, model_only, reseeds_every_step)
    raise_together(folder, plan.problems())
    loaded = load_checkpoint(
        folder, plan.request(), verify_files=verify_files, model_only=model_only
    )
    load_model_state(unwrapped(parts.model), loaded["model"])
    notes = list(plan.notes(recipe_sha256))
    if not model_only:
        notes += everywhere(lambda: plan.restore(loaded))
    result = Loaded(folder, record, plan.restored(), tuple(notes))
    for note in result.notes:
        logger.warning("%s: %s", folder, note)
    return result


def _record(folder: Path, parts: TrainingParts, model_only: bool) -> TrainingRecord | None:
    manifest = read_manifest(folder / MANIFEST_NAME)
    path = folder / MANIFEST_NAME
    if manifest.layout != "megatron":
        raise CheckpointError(
            f"{folder} has the {manifest.layout} layout: "
            f"./mxtree ckpt convert {folder} DST --to megatron"
        )
    expected = unwrapped(parts.model).config.architecture
    found = architecture_from_json(manifest.architecture, path)
    if found != expected:
        differences = found.differences(expected)
        raise CheckpointError(f"{folder}: another architecture (checkpoint != model):", differences)
    if manifest.training is None:
        if model_only:
            return None
        raise CheckpointError(
            f"{folder} holds weights only, no run to resume: start from it with model_only"
        )
    try:
        return record_from_json(manifest.training)
    except (KeyError, TypeError) as error:
        raise CheckpointError(f"{path}: not a record of a run ({error!r})") from error


@dataclass(frozen=True)
class _Plan:
    """What this rank asks of a checkpoint, and what it does with it."""

    parts: TrainingParts
    record: TrainingRecord | None
    model_only: bool
    reseeds_every_step: bool

    def problems(self) -> list[str]:
        """Every reason not to resume."""
        if self.record is None:
            return []
        found = _version_problems(self.record.versions["megatron-core"])
        if self.model_only:
            return found
        return [*found, *self._part_problems(self.record), *self._layout_problems(self.record)]

    def request(self) -> StateDict:
        """The sharded state dict to load into."""
        if self.record is None or self.model_only:
            return {"model": training_state(_model_alone(self.parts), None)["model"]}
        if self.parts.optimizer is not None:
            allocate_adam_state(self.parts.optimizer)
        state = training_state(self.parts, self.record.optimizer_format, is_loading=True)
        if self._same_ranks(self.record):
            state[RANDOM_STATE] = random_object()
        return {**state, **self._loader_request(self.record.layout.data)}

    def restore(self, loaded: StateDict) -> list[str]:
        """Continue from what was loaded, the generators last; returns what the log should say."""
        parts, common = self.parts, loaded.get("common", {})
        notes: list[str] = []
        if parts.optimizer is not None:
            notes += self._restore_optimizer(parts.optimizer, loaded["optimizer"])
        if parts.scheduler is not None:
            notes += resume_schedule(parts.scheduler, common["scheduler"])
        if parts.counter is not None:
            parts.counter.training = common["counter"]["training"]
        if parts.loader is not None and LOADER_STATE in loaded:
            parts.loader.load_state_dict(loaded[LOADER_STATE])
        if isinstance(parts.loader, ReshardableLoader) and _ALL_LOADERS in loaded:
            states = loaded[_ALL_LOADERS]
            parts.loader.load_resharded([states[f"rank_{i}"] for i in range(len(states))])
        if RANDOM_STATE in loaded:
            random_states.restore(loaded[RANDOM_STATE])
        return notes

    def _restore_optimizer(self, optimizer: MegatronOptimizer, state: StateDict) -> list[str]:
        own = group_values(optimizer)
        notes = adopt_ranges(optimizer, state)
        try:
            load_optimizer_state(optimizer, state)
        except (AssertionError, KeyError, ValueError) as error:
            raise CheckpointError(f"the optimizer's state does not fit: {error!r}") from error
        scheduled = self.parts.scheduler is not None
        return notes + reapply_group_values(optimizer, own, scheduled=scheduled)

    def restored(self) -> tuple[str, ...]:
        """Names of what this run continues from."""
        if self.record is None or self.model_only:
            return ()
        kept = self._same_ranks(self.record)
        return tuple(name for name in self.record.holds if name != "random" or kept)

    def notes(self, recipe_sha256: str | None) -> Iterator[str]:
        """What the log should say."""
        if self.record is None or self.model_only:
            return
        saved = self.record.progress.recipe_sha256
        if recipe_sha256 is not None and recipe_sha256 != saved:
            yield f"written under recipe {saved[:12]}, resumed under {recipe_sha256[:12]}"
        if not self._same_ranks(self.record):
            yield "other ranks: generators start anew, every step reseeds them"
        core, own = self.record.versions["megatron-core"], versions()["megatron-core"]
        if core != own:
            yield f"written by megatron-core {core}, resumed by {own}"

    def _same_ranks(self, record: TrainingRecord) -> bool:
        return record.layout == current_layout()

    def _part_problems(self, record: TrainingRecord) -> list[str]:
        held, asked = set(record.holds), set(held_by(self.parts))
        problems = [f"the checkpoint has no {name}, this run does" for name in asked - held]
        problems += [f"the checkpoint has a {name}, this run has none" for name in held - asked]
        return sorted(problems)

    def _layout_problems(self, record: TrainingRecord) -> list[str]:
        saved, here = record.layout, current_layout()
        if saved == here:
            return []
        differences = ", ".join(saved.differences(here))
        problems = []
        model_parallel = replace(here, data=saved.data)
        if record.optimizer_format == "dp_reshardable" and saved != model_parallel:
            problems.append(
                f"the optimizer was saved as dp_reshardable ({differences}): only the "
                "data-parallel size may change; save with optimizer_format: fully_reshardable, or "
                "start from the weights with model_only"
            )
        if not self.reseeds_every_step:
            problems.append(
                f"each rank's generators were saved ({differences}): resume on as many ranks, or "
                "set per_step_rng_reseed: true, which makes them needless"
            )
        loader = self.parts.loader
        if saved.data != here.data and not isinstance(loader, ReshardableLoader | None):
            problems.append(
                f"the data loader was saved on {saved.data} data-parallel ranks, this run has "
                f"{here.data}, and {type(loader).__name__} cannot continue under another size"
            )
        return problems

    def _loader_request(self, saved: int) -> StateDict:
        if self.parts.loader is None:
            return {}
        data = parallel_state.get_data_parallel_world_size()
        if saved == data:
            index = parallel_state.get_data_parallel_rank()
            return {LOADER_STATE: loader_object(None, data, index)}
        return {_ALL_LOADERS: every_loader(saved)}


def _model_alone(parts: TrainingParts) -> TrainingParts:
    return TrainingParts(parts.model)


def _version_problems(written_by: str) -> list[str]:
    """Releases read what older ones wrote: pickles name classes that only their writer has."""
    own = versions()["megatron-core"]
    if release(written_by) <= release(own):
        return []
    refusal = (
        f"written by megatron-core {written_by}, this is {own}: a checkpoint loads in the release "
        "that wrote it or a newer one. Resume with a tree of that release, or take the weights "
        "over: ./mxtree ckpt convert CHECKPOINT WEIGHTS --to mxflux, then WEIGHTS --to megatron"
    )
    return [refusal]
