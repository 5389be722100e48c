# SPDX-License-Identifier: Apache-2.0
"""What the tool itself needs of the machine."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from mxtree.cache import cache_dir
from mxtree.environment.doctor.row import missing, ok, wrong
from mxtree.environment.pythons import DEFAULT_VERSION, find_python
from mxtree.errors import FatalError
from mxtree.git import MINIMUM_GIT

if TYPE_CHECKING:
    from mxtree.environment.doctor.row import Row
    from mxtree.project import Project

#: Free space in GB that builds need, and that an environment with a CUDA or ROCm torch needs.
BUILD_GB = 1.0
ENVIRONMENT_GB = 15.0


def git() -> Row:
    """Look at git and its version."""
    needed = ".".join(map(str, MINIMUM_GIT))
    fix = f"install git >= {needed}"
    try:
        process = subprocess.run(["git", "--version"], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return missing("git", "not on PATH", fix, required=True)
    found = re.search(r"(\d+)\.(\d+)\S*", process.stdout)
    if found is None:
        said = (process.stdout + process.stderr).strip()
        return wrong("git", f"does not tell its version: {said}", fix, required=True)
    if (int(found[1]), int(found[2])) < MINIMUM_GIT:
        return wrong("git", f"{found[0]}, older than {needed}", fix, required=True)
    return ok("git", found[0], required=True)


def tool_python() -> Row:
    """Name the Python that runs the tool."""
    return ok("python of the tool", f"{platform.python_version()}  {sys.executable}", required=True)


def training_python() -> Row:
    """Look for the Python that environments for a tree are made with."""
    name = f"python {DEFAULT_VERSION}"
    try:
        return ok(name, str(find_python()))
    except FatalError as error:
        return missing(name, "for `install` and `test`", str(error.hint))


def patch_attributes(project: Project | None) -> Row:
    """Ask git whether it would convert line ends of patches, by the user's own configuration."""
    name = "patches as bytes"
    if project is None:
        return missing(name, "not in a checkout of mxtree", "run mxtree in its checkout")
    env = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    probe = "patches/any/1.0/0001-any.patch"
    command = ["git", "-C", str(project.root), "check-attr", "text", "--", probe]
    try:
        process = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return wrong(name, "cannot be asked without git", "install git", required=True)
    if process.returncode:
        return ok(name, "not a git checkout, so nothing converts them", required=True)
    value = process.stdout.strip().rpartition(": ")[2]
    if value == "unset":
        return ok(name, "*.patch -text", required=True)
    fix = (
        f"put the line `*.patch -text` last into {project.root / '.gitattributes'} and remove "
        "what contradicts it in .git/info/attributes"
    )
    return wrong(name, f"git's attribute text of *.patch is {value}", fix, required=True)


def cache() -> Row:
    """Look at the cache folder: can it be written, and is there room."""
    folder = cache_dir()
    fix = "make room or make it writable, or name another folder: MXTREE_CACHE=/path"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        return wrong("cache", f"{folder}: {error.strerror}", fix, required=True)
    free = _free_gb(folder)
    if free < BUILD_GB:
        return wrong("cache", f"{folder}: {free:.1f} GB free", fix, required=True)
    return ok("cache", f"{folder}: {free:.1f} GB free", required=True)


def disk(folder: Path) -> Row:
    """Look at the space where trees and their environments go."""
    free = _free_gb(folder)
    found = f"{folder}: {free:.1f} GB free"
    if free < BUILD_GB:
        fix = "make room, or build elsewhere: mxtree build --out"
        return wrong("disk", found, fix, required=True)
    if free < ENVIRONMENT_GB:
        fix = (
            f"an environment with torch takes up to {ENVIRONMENT_GB:.0f} GB: make room, or use one "
        )
        return wrong("disk", found, fix + "that exists (mxtree install --python)")
    return ok("disk", found)


def _free_gb(folder: Path) -> float:
    while not folder.exists():
        folder = folder.parent
    return shutil.disk_usage(folder).free / 1e9
