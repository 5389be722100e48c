# SPDX-License-Identifier: Apache-2.0
"""Print what a Python environment holds, as JSON; run by path in that environment.

Standard library only and old syntax: it also has to answer for interpreters that are too old.
Arguments: names of modules to locate. Nothing of what is located is executed, but for the parents
of dotted names.
"""

from __future__ import annotations

import sys

if not getattr(sys.flags, "safe_path", False):
    del sys.path[0]  # this folder; what remains is what a program in this environment sees

import importlib.metadata
import importlib.util
import json
import os
import sysconfig


def locate(name: str) -> str | None:
    """Return where a module would be imported from: a file, or a folder without __init__.py."""
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, AttributeError, ValueError):
        return None
    if spec is None:
        return None
    if spec.origin is not None:
        return spec.origin
    return next(iter(spec.submodule_search_locations or []), None)


def describe(distribution: importlib.metadata.Distribution) -> dict[str, object]:
    """Return what identifies an installed distribution; ``mxtree`` is the note we leave in ours."""
    note = distribution.read_text("mxtree.json")
    return {
        "name": distribution.metadata["Name"],
        "version": distribution.version,
        "location": str(distribution.locate_file("")),
        "note": json.loads(note) if note else None,
    }


def main() -> None:
    """Print the facts."""
    distributions = [d for d in importlib.metadata.distributions() if d.metadata["Name"]]
    marker = os.path.join(sysconfig.get_path("stdlib"), "EXTERNALLY-MANAGED")  # noqa: PTH118
    is_venv = sys.prefix != sys.base_prefix
    json.dump(
        {
            "version": list(sys.version_info[:3]),
            "executable": sys.executable,
            "prefix": sys.prefix,
            "purelib": sysconfig.get_path("purelib"),
            "externally_managed": not is_venv and os.path.exists(marker),  # noqa: PTH110
            "modules": {name: locate(name) for name in sys.argv[1:]},
            "distributions": [describe(distribution) for distribution in distributions],
        },
        sys.stdout,
    )


main()
