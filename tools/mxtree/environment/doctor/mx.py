# SPDX-License-Identifier: Apache-2.0
"""Which MX packers and GEMM backends run in an environment, as mxflux there says."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING, Any

from mxtree.environment import start
from mxtree.environment.doctor.row import Row, missing, ok, wrong

if TYPE_CHECKING:
    from pathlib import Path

_NAMES = {"packers": "MX packer", "backends": "MX GEMM"}
_TIMEOUT_S = 120


def rows(python: Path) -> list[Row]:
    """Return a row for each packer and backend; one row when mxflux there cannot say."""
    command = start.module_command(python, "mxflux.mx.doctor", ["--json"])
    try:
        process = subprocess.run(
            command,
            env=start.environment(),
            capture_output=True,
            text=True,
            check=False,
            timeout=_TIMEOUT_S,
        )
        found = json.loads(process.stdout)
        return [
            _row(f"{_NAMES[kind]} {tool['name']}", tool) for kind in _NAMES for tool in found[kind]
        ]
    except subprocess.TimeoutExpired:
        said = f"no answer within {_TIMEOUT_S} s"
    except (ValueError, KeyError, TypeError):
        lines = process.stderr.strip().splitlines()
        said = lines[-1] if lines else "no machine form, so it is of an older mxflux"
    fix = f"see what `{python} -m mxflux.mx.doctor` says, or install anew: mxtree install"
    return [wrong("MX formats", f"mxflux.mx.doctor: {said}", fix)]


def _row(name: str, tool: dict[str, Any]) -> Row:
    formats = ", ".join(tool["formats"])
    if tool["missing"] is None:
        return ok(name, formats)
    return missing(name, tool["missing"], f"only a recipe that names it needs it; for {formats}")
