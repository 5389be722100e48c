# SPDX-License-Identifier: Apache-2.0
"""run.json: the trainer's part of it, written in one step; the rest is the launcher's."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

FILE = "run.json"


def update_run_record(run_dir: Path, **fields: Any) -> None:
    """Set fields of RUN/run.json, keeping all others; a missing file is made.

    Raises ValueError naming the file when it holds something else than an object.
    """
    path = run_dir / FILE
    record: Any = {"format": 1}
    if path.exists():
        record = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(record, dict):
            raise ValueError(f"{path}: expected an object, got {type(record).__name__}")
    record.update(fields)
    scratch = path.with_name(f".{FILE}.{os.getpid()}")
    scratch.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    scratch.replace(path)
