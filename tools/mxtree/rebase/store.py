# SPDX-License-Identifier: Apache-2.0
"""Where a rebase lives between commands, and how it survives being killed at any moment."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pydantic import ValidationError

from mxtree.errors import ExitCode, FatalError
from mxtree.rebase.model import Rebase

if TYPE_CHECKING:
    from pathlib import Path

    from mxtree.project import Project


@dataclass(frozen=True)
class Store:
    """The files of the rebase of one upstream, below ``.mxtree/rebase/`` of the project."""

    folder: Path
    upstream: str

    @classmethod
    def of(cls, project: Project, upstream: str) -> Store:
        """Return the store of one upstream."""
        return cls(project.root / ".mxtree" / "rebase" / upstream, upstream)

    @property
    def state(self) -> Path:
        return self.folder / "state.json"

    @property
    def work(self) -> Path:
        """The private work tree: plain git, where conflicts are resolved."""
        return self.folder / "work"

    @property
    def report(self) -> Path:
        """The last rebase or forecast, for `mxtree report rebase`."""
        return self.folder.with_name(f"{self.upstream}.report.json")

    @property
    def finished(self) -> Path:
        """What the last `--finish` changed, for `--undo`."""
        return self.folder.with_name(f"{self.upstream}.finished.json")

    @property
    def resolutions(self) -> Path:
        """What git remembers of resolved conflicts (its rr-cache); outlives every rebase."""
        return self.folder.with_name(f"{self.upstream}.resolutions")

    def is_open(self) -> bool:
        """Return whether a rebase is under way (or its state was lost)."""
        return self.folder.exists()

    def save(self, rebase: Rebase) -> None:
        """Write the state so that a crash leaves the old one or the new one."""
        write_durably(self.state, rebase.model_dump_json(indent=2).encode() + b"\n")

    def load(self) -> Rebase:
        """Read the state. Raises `FatalError` when there is none, or it cannot be read."""
        if not self.folder.exists():
            raise FatalError(
                f"no rebase of {self.upstream} is under way",
                details=[
                    f"the last one is finished; mxtree rebase {self.upstream} --undo undoes it"
                ]
                * self.finished.exists(),
                hint=f"mxtree rebase {self.upstream} --onto VERSION starts one",
            )
        try:
            return Rebase.model_validate_json(self.state.read_bytes())
        except FileNotFoundError as error:
            raise self._lost("is gone") from error
        except ValidationError as error:
            raise self._lost("cannot be read") from error

    def _lost(self, what: str) -> FatalError:
        return FatalError(
            f"the state file of the rebase of {self.upstream} {what} ({self.state})",
            details=[f"what was resolved so far is in {self.work} (git log, git reflog)"],
            hint=f"mxtree rebase {self.upstream} --abort, then start again; "
            "the series and the pins are as they were",
            code=ExitCode.CHECK_FAILED,
        )

    def clear(self) -> None:
        """Forget the rebase."""
        if self.folder.exists():
            # Renamed first: a kill in the middle of the removal must not leave half a state.
            gone = self.folder.with_name(f".{self.upstream}.gone")
            shutil.rmtree(gone, ignore_errors=True)
            self.folder.rename(gone)
            shutil.rmtree(gone)


def write_durably(path: Path, data: bytes) -> None:
    """Replace the content of ``path`` in one step that also survives a power cut."""
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}.new")
    with aside.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    aside.replace(path)


def directory_digest(directory: Path) -> str:
    """Return the sha256, in hex, of the names and bytes of the files in a series directory."""
    files = sorted(path for path in directory.iterdir() if path.is_file())
    listing = [[path.name, hashlib.sha256(path.read_bytes()).hexdigest()] for path in files]
    return hashlib.sha256(json.dumps(listing).encode()).hexdigest()
