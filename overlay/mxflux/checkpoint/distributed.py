# SPDX-License-Identifier: Apache-2.0
"""Sharded state dicts to and from torch_dist folders: all or nothing, strict on load."""

from __future__ import annotations

import inspect
import logging
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from megatron.core import dist_checkpointing
from megatron.core.dist_checkpointing.core import CheckpointingException
from torch.distributed.checkpoint.api import CheckpointException

from .chunks import Described, describe_folder
from .dcp import DistributedTensors
from .errors import CheckpointError
from .manifest import MANIFEST_NAME, Manifest, TensorRecord, read_manifest
from .publish import require_absent, sync_folder, sync_tree
from .safetensors_file import DTYPE_NAMES
from .sharded import StateDict, local_bytes, strict_problems, without_absent_extra_state
from .sources import architecture_to_json
from .together import everywhere, gather, on_rank_zero, raise_together, share
from .tracker import TRACKER, checkpoint_folder, final_iteration, read_tracker, write_tracker
from .verify import extra_files, file_problems, metadata_problems

if TYPE_CHECKING:
    from pathlib import Path

    from megatron.core.dist_checkpointing.strategies.async_utils import AsyncRequest

    from mxflux.flux.architecture import FluxArchitecture

    from .training_record import TrainingRecord

logger = logging.getLogger(__name__)

_SPARE_BYTES = 16 << 20
"""Room for names, plans and the manifest beside the tensors."""


@dataclass(frozen=True)
class Save:
    """A checkpoint being written: ``root``/iter_NNNNNNN, beside it until it is complete.

    The data are written into a scratch folder, every file is hashed and synced, the folder is
    renamed, then the tracker is replaced: whenever the job dies, the tracker names a complete
    checkpoint. All methods are called on every rank of the default group, and raise on every
    rank what went wrong on any.
    """

    root: Path
    iteration: int
    architecture: FluxArchitecture
    training: TrainingRecord | None = None

    @property
    def final(self) -> Path:
        """The folder of the complete checkpoint."""
        return checkpoint_folder(self.root, self.iteration)

    @property
    def scratch(self) -> Path:
        """The folder until then; nothing mistakes its name for a checkpoint."""
        return self.final.with_name(f".{self.final.name}.partial")

    def begin(self, state: StateDict) -> None:
        """Make the scratch folder.

        Raises FileExistsError when the iteration is there already, OSError when the disk has
        less room than the state needs.
        """
        needed = sum(gather(local_bytes(state))) + _SPARE_BYTES
        on_rank_zero(lambda: self._prepare(needed))

    def write(self, state: StateDict) -> None:
        """Write the state; after a failure the scratch folder is gone."""
        with _Translated(self):
            dist_checkpointing.save(state, str(self.scratch), **_content(self.training))

    def write_in_background(self, state: StateDict) -> AsyncRequest:
        """A request for Megatron's AsyncCallsQueue, which writes the state."""
        with _Translated(self):
            return dist_checkpointing.save(
                state,
                str(self.scratch),
                async_sharded_save=True,
                **_content(self.training),
                **_in_background(),
            )

    def describe_share(self) -> Described:
        """Hash this rank's share of the files written; the one call that takes long."""
        names = share(sorted(file.name for file in self.scratch.iterdir()))
        return describe_folder(self.scratch, names) if names else {}

    def publish(self, described: Described) -> Path:
        """Write the manifest, sync, rename, and name as the latest; returns the folder."""
        merged: Described = {}
        for part in gather(described):
            merged.update(part)
        on_rank_zero(lambda: self._publish(merged))
        on_rank_zero(lambda: write_tracker(self.root, self.iteration))
        return self.final

    def discard(self) -> None:
        """Remove what was written of a checkpoint that will not be complete."""
        on_rank_zero(lambda: shutil.rmtree(self.scratch, ignore_errors=True))

    def failed(self, error: BaseException) -> CheckpointError:
        """What to raise, on this rank, for a failure of Megatron's."""
        return CheckpointError(
            f"{self.final}: not saved, nothing of it is left: {cause_of(error)} "
            f"({shutil.disk_usage(self.root).free:,} bytes are free there). "
            f"{_still_there(self.root)}"
        )

    def _prepare(self, needed: int) -> None:
        self.root.mkdir(parents=True, exist_ok=True)
        if self.scratch.exists():
            shutil.rmtree(self.scratch)  # left by a run that died while saving this iteration
        if self.final.exists() and not _was_named(self.final):
            # A run died between rename and tracker, resumed from an earlier one and is here again.
            logger.warning("%s was never named as the latest: it is saved anew", self.final)
            self.final.rename(self.scratch)
            shutil.rmtree(self.scratch)
        require_absent(self.final)
        free = shutil.disk_usage(self.root).free
        if free < needed:
            raise OSError(
                f"{self.final} needs {needed:,} bytes, {free:,} are free there. "
                f"{_still_there(self.root)}"
            )
        self.scratch.mkdir()

    def _publish(self, described: Described) -> None:
        missed = sorted({file.name for file in self.scratch.iterdir()} - described.keys())
        if missed:
            raise OSError(
                f"{self.final}: not saved: no rank hashed {', '.join(missed)}. The ranks see "
                "different files there: the folder must be on a file system that all nodes share "
                f"and that shows a file at once. {_still_there(self.root)}"
            )
        stored = DistributedTensors(self.scratch).tensors
        tensors = {
            name: TensorRecord(list(info.shape), DTYPE_NAMES[info.dtype], None)
            for name, info in stored.items()
        }
        manifest = Manifest(
            "megatron",
            architecture_to_json(self.architecture),
            tensors,
            files={name: file for name, (file, _) in described.items()},
            chunks={name: chunks for name, (_, chunks) in described.items() if chunks},
            training=self.training.to_json() if self.training else None,
        )
        manifest.write(self.scratch / MANIFEST_NAME)
        sync_tree(self.scratch)
        self.scratch.rename(self.final)
        sync_folder(self.final.parent)


class _Translated:
    """Turns what Megatron and torch raise into CheckpointError, after the scratch is removed.

    torch's CheckpointException is a BaseException, raised on every rank when any fails to write.
    """

    def __init__(self, save: Save) -> None:
        self._save = save

    def __enter__(self) -> None:
        pass

    def __exit__(self, _kind: Any, error: BaseException | None, _where: Any) -> None:
        if isinstance(error, WRITE_ERRORS):
            shutil.rmtree(self._save.scratch, ignore_errors=True)
            raise self._save.failed(error) from error


WRITE_ERRORS = (CheckpointException, CheckpointingException, OSError, RuntimeError, ValueError)
"""What Megatron and torch raise when a checkpoint cannot be written or read."""


def save_checkpoint(
    root: Path, iteration: int, state: StateDict, architecture: FluxArchitecture
) -> Path:
    """Save a sharded state dict as ``root``/iter_NNNNNNN and name it the latest (see Save)."""
    save = begin_save(root, iteration, state, architecture)
    save.write(state)
    return finish_save(save)


def begin_save(
    root: Path,
    iteration: int,
    state: StateDict,
    architecture: FluxArchitecture,
    training: TrainingRecord | None = None,
) -> Save:
    """Make the scratch folder of a save; raises FileExistsError on every rank when it is there."""
    save = Save(root, iteration, architecture, training)
    save.begin(state)
    return save


def finish_save(save: Save) -> Path:
    """Hash, record, sync, rename and name as the latest what a save has written."""
    try:
        return save.publish(everywhere(save.describe_share))
    except OSError:
        save.discard()
        raise


def load_checkpoint(
    folder: Path,
    state: StateDict,
    *,
    verify_files: bool = True,
    model_only: bool = False,
) -> StateDict:
    """Load a checkpoint into the layout that ``state`` asks for, on any number of ranks.

    Every file is hashed (the ranks share the work), names, shapes and dtypes must agree exactly;
    only TransformerEngine's extra state may differ. ``model_only`` leaves training state in the
    checkpoint unread.
    Raises CheckpointError on every rank, listing all problems; nothing is loaded then.
    """
    manifest: Manifest = everywhere(lambda: read_manifest(folder / MANIFEST_NAME))
    if verify_files:
        raise_together(folder, _verify_share(folder, manifest))
    stored = everywhere(lambda: DistributedTensors(folder))
    raise_together(folder, metadata_problems(stored.tensors, manifest))
    raise_together(folder, strict_problems(stored.tensors, state, model_only))
    present = without_absent_extra_state(state, stored.objects)
    loaded: StateDict = {}
    problems = []
    try:
        loaded = dist_checkpointing.load(present, str(folder))
    except (*WRITE_ERRORS, AssertionError, KeyError) as error:
        problems.append(f"not loaded: {cause_of(error)}")  # some errors are seen by rank 0 alone
    raise_together(folder, problems)
    return loaded


def cause_of(error: BaseException) -> str:
    """The first sentence of what failed, from the rank where it did when this one knows."""
    if isinstance(error, CheckpointException):
        known = [f"rank {rank}: {failure[0]}" for rank, failure in error.failures.items()]
        return "; ".join(known) or "a write failed (rank 0 reports which)"
    text = str(error).strip()
    return text or type(error).__name__


def _content(training: TrainingRecord | None) -> dict[str, Any]:
    """What Megatron's own loader looks for in common.pt, to tell the optimizer's format."""
    if training is None or training.optimizer_format is None:
        return {}
    return {"content_metadata": {"distrib_optim_sharding_type": training.optimizer_format}}


def _in_background() -> dict[str, str]:
    """Megatron's own writer: 0.16 has no other, later releases default to another package's."""
    known = inspect.signature(dist_checkpointing.save).parameters
    return {"async_strategy": "mcore"} if "async_strategy" in known else {}


def _was_named(final: Path) -> bool:
    root = final.parent
    return (root / TRACKER).exists() and read_tracker(root) >= final_iteration(final)


def _still_there(root: Path) -> str:
    if not (root / TRACKER).exists():
        return "There is no earlier checkpoint"
    return f"{checkpoint_folder(root, read_tracker(root))} is still the latest"


def _verify_share(folder: Path, manifest: Manifest) -> list[str]:
    problems = file_problems(folder, manifest, share(sorted(manifest.files)))
    if torch.distributed.get_rank() == 0:
        problems += extra_files(folder, manifest)
    return problems
