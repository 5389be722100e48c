# SPDX-License-Identifier: Apache-2.0
"""What `install` and `wheel` print."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from mxtree.environment.wheel import LEFT_OUT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mxtree.environment.install import InstallResult
    from mxtree.environment.wheel import BuiltWheel


def installed(result: InstallResult, *, as_json: bool) -> None:
    """Print what an environment has now."""
    if as_json:
        print(
            json.dumps(
                {
                    "python": str(result.python),
                    "python_version": result.python_version,
                    "versions": result.versions,
                    "compiled_parts": list(result.compiled),
                    "notes": list(result.notes),
                },
                indent=2,
            )
        )
        return
    print(f"{'python':20} {result.python_version}  {result.python}")
    for name, version in result.versions.items():
        print(f"{name:20} {version}  (editable)")
    print(f"{'compiled parts':20} {', '.join(result.compiled) or 'none'}")
    for note in result.notes:
        print(f"note: {note}")


def built(wheels: Sequence[BuiltWheel], *, as_json: bool) -> None:
    """Print which wheels were made."""
    if as_json:
        rows = [
            {
                "name": wheel.name,
                "version": wheel.version,
                "path": str(wheel.path),
                "sha256": wheel.sha256,
                "size": wheel.size,
            }
            for wheel in wheels
        ]
        print(json.dumps({"wheels": rows, "left_out": [LEFT_OUT]}, indent=2))
        return
    for wheel in wheels:
        print(f"{wheel.path}  {wheel.size / 1e6:.1f} MB  sha256 {wheel.sha256[:12]}")
    print(f"note: {LEFT_OUT}")
    print(f"next: pip install {' '.join(str(wheel.path) for wheel in wheels)}")
