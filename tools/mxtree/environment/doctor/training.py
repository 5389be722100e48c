# SPDX-License-Identifier: Apache-2.0
"""What a training environment holds: torch, triton, AITER, TransformerEngine, the tree."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mxtree.environment import compiled, foreign, requirements, start, venv
from mxtree.environment.doctor import gpu, mx
from mxtree.environment.doctor.row import Row, missing, ok, wrong
from mxtree.environment.interpreter import Interpreter, inspect
from mxtree.environment.metadata import DIGEST_LENGTH

if TYPE_CHECKING:
    from mxtree.project import Project

_PROBE = Path(__file__).with_name("probe_torch.py")
_AITER = ("amd-aiter", "aiter")


def default_python(project: Project | None) -> Path | None:
    """Return the interpreter to look into when none is named.

    That of the default tree's environment, else of the active environment, else python3 on PATH.
    """
    places = [venv.python_of(venv.default_location(project.default_tree))] if project else []
    if active := os.environ.get("VIRTUAL_ENV"):
        places.append(venv.python_of(Path(active)))
    if on_path := shutil.which("python3"):
        places.append(Path(on_path))
    return next((place for place in places if place.exists()), None)


def rows(python: Path, tree_digest: str | None) -> list[Row]:
    """Return a row for each thing in the environment of ``python``.

    ``tree_digest`` is that of the tree which should be installed, None when there is no tree.
    """
    wanted = requirements.read()
    target = inspect(python, [*map(requirements.module, wanted), "aiter", "mxflux"])
    facts = _ask_torch(python) if target.modules["torch"] else {}
    architectures = [item["arch"] for item in facts.get("gpus", [])] or gpu.from_drivers()
    return [
        ok("environment", f"Python {target.version}  {python}"),
        _torch(target, facts),
        _packages(target),
        gpu.row(architectures),
        _aiter(target, architectures),
        *(_distribution(target, name, tree_digest) for name in foreign.NAMES),
        _compiled(target),
        *(mx.rows(python) if target.modules["mxflux"] and "version" in facts else []),
    ]


def architectures(python: Path) -> list[str]:
    """Return the architecture of each GPU that torch in the environment of ``python`` sees."""
    return [item["arch"] for item in _ask_torch(python).get("gpus", [])]


def _ask_torch(python: Path) -> Any:
    env = start.environment()
    process = subprocess.run([python, _PROBE], env=env, capture_output=True, text=True, check=False)
    try:
        return json.loads(process.stdout)
    except ValueError:
        last = process.stderr.strip().splitlines()[-1:] or [f"status {process.returncode}"]
        return {"error": last[0]}


def _torch(target: Interpreter, facts: dict[str, Any]) -> Row:
    fix = "install the torch that is built for this machine, or make an environment: mxtree install"
    if not facts:
        return missing("torch", "not installed", fix)
    if "error" in facts:
        return wrong("torch", f"cannot be imported: {facts['error']}", fix)
    backend = f"ROCm {facts['hip']}" if facts["hip"] else f"CUDA {facts['cuda']}"
    built_for = backend if facts["hip"] or facts["cuda"] else "CPU"
    triton = target.distributions.get("triton") or target.distributions.get("pytorch-triton-rocm")
    return ok("torch", f"{facts['version']} ({built_for}), triton {_version(triton)}")


def _packages(target: Interpreter) -> Row:
    wanted = requirements.read()
    lacking = [str(r) for r in wanted if target.modules[requirements.module(r)] is None]
    if lacking:
        fix = f"mxtree install --python {target.python} --with-deps (not torch and triton)"
        return missing("packages", ", ".join(lacking), fix)
    return ok("packages", "all that the tree needs")


def _aiter(target: Interpreter, architectures: list[str]) -> Row:
    found = next((target.distributions[n] for n in _AITER if n in target.distributions), None)
    if target.modules["aiter"] is not None:
        return ok("AITER", f"{_version(found)}  {Path(str(target.modules['aiter'])).parent}")
    if any(name.startswith("gfx") for name in architectures):
        return missing("AITER", "not installed", "use AMD's training image, or install amd-aiter")
    return missing("AITER", "not installed", "nothing to do: it is for AMD GPUs")


def _distribution(target: Interpreter, name: str, tree_digest: str | None) -> Row:
    found = target.distributions.get(name)
    if found is None:
        return missing(name, "not installed", f"mxtree install --python {target.python}")
    if found.note is None:
        fix = f"mxtree install --python {target.python} --replace {name}, or keep it: --without"
        return wrong(name, f"{found.version}, not of a tree", fix)
    digest = found.note["digest"]
    if tree_digest is not None and digest != tree_digest:
        fix = f"mxtree install --python {target.python}"
        short = tree_digest[:DIGEST_LENGTH]
        return wrong(name, f"{found.version}, of another tree than {short}", fix)
    return ok(name, f"{found.version}, of tree {digest[:DIGEST_LENGTH]}")


def _compiled(target: Interpreter) -> Row:
    parts = compiled.present(target)
    if parts:
        return ok("TE compiled parts", ", ".join(parts))
    fix = "none are needed for the CPU tests; for training, install the tree's version of them"
    return missing("TE compiled parts", "not installed", fix)


def _version(found: object) -> str:
    return str(getattr(found, "version", "of unknown version"))
