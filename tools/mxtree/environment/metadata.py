# SPDX-License-Identifier: Apache-2.0
"""Core metadata of a distribution: upstream's own, or made from static files without a build."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import tomllib
from packaging.metadata import Metadata, parse_email
from packaging.version import Version
from pyproject_metadata import ConfigurationError, StandardMetadata

from mxtree.errors import ExitCode, FatalError

if TYPE_CHECKING:
    from pathlib import Path

#: Hexadecimal digits of the tree digest that a local version shows.
DIGEST_LENGTH = 12


def with_header(metadata: bytes, field: str, value: str) -> bytes:
    """Return ``metadata`` with another value of one header and not one other byte changed."""
    head, separator, body = metadata.partition(b"\n\n")
    line = re.compile(rb"^" + field.encode() + rb":[^\r\n]*", re.MULTILINE | re.IGNORECASE)
    changed = line.sub(f"{field}: {value}".encode().replace(b"\\", rb"\\"), head, count=1)
    return changed + separator + body


def parse(metadata: bytes) -> Metadata:
    """Return the fields of ``metadata``; each is validated when it is read."""
    raw, _ = parse_email(metadata)
    return Metadata.from_raw(raw, validate=False)


def from_project(project: dict[str, Any], root: Path) -> bytes:
    """Return the metadata of a ``[project]`` table; files that it names lie in ``root``."""
    return bytes(StandardMetadata.from_pyproject({"project": project}, root).as_rfc822())


def from_pyproject(root: Path, version: str) -> bytes:
    """Return metadata made from ``root/pyproject.toml`` and ``version``; no code is run.

    Version and readme may be dynamic there. Raises `FatalError` when anything else is, and when the
    table is missing or malformed.
    """
    try:
        return from_project(_static_project(root, version), root)
    except (OSError, ValueError, KeyError, ConfigurationError) as error:
        raise no_metadata(root / "pyproject.toml", str(error)) from error


def _static_project(root: Path, version: str) -> dict[str, Any]:
    table = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))
    project = {**table["project"], "version": version}
    dynamic = set(project.pop("dynamic", ())) - {"version"}
    if "readme" in dynamic:
        readme = table["tool"]["setuptools"]["dynamic"]["readme"]
        text = (root / readme["file"]).read_text("utf-8")
        project["readme"] = {"text": text, "content-type": readme["content-type"]}
        dynamic.remove("readme")
    if dynamic:
        raise ValueError(f"its fields {', '.join(sorted(dynamic))} are dynamic")
    return project


def no_metadata(path: Path, reason: str) -> FatalError:
    """Return the error of a distribution whose metadata would take running its build."""
    return FatalError(
        f"{path} does not give the metadata of its distribution: {reason}",
        hint="releases from the package index carry theirs: mxtree build --source index",
        code=ExitCode.COULD_NOT_CHECK,
    )


def local_version(version: str, digest: str, *, modified: bool = False) -> str:
    """Return ``<version>+mxtree.<first digits of digest>``, with ``.modified`` where it applies.

    A local part of decimal digits alone would be read as a number and lose its leading zeros, so a
    prefix without a letter is made longer until it has one.
    """
    length = DIGEST_LENGTH
    while digest[:length].isdigit() and length < len(digest):
        length += 1
    return f"{Version(version).public}+mxtree.{digest[:length]}{'.modified' if modified else ''}"
