# SPDX-License-Identifier: Apache-2.0
"""Small sdists and wheels, and the id that git itself gives their content."""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import random
import subprocess
import tarfile
import zipfile
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path


@dataclass(frozen=True)
class Member:
    """A member of an archive: a file unless ``link`` or ``kind`` says otherwise."""

    path: str
    data: bytes = b""
    mode: int = 0o644
    link: str | None = None
    kind: bytes | None = None


#: What a tiny release of an upstream holds: a module, a script, a link, bytes that git could alter.
MEMBERS = (
    Member("pyproject.toml", b"[project]\nname = 'tiny'\n"),
    Member("tiny/__init__.py", b"VERSION = '1.0'\n"),
    Member("tiny/crlf.py", b"a = 1\r\nb = 2\r\n"),
    Member("tiny/no_newline.py", b"c = 3"),
    Member("tools/run.sh", b"#!/bin/sh\nexit 0\n", mode=0o755),
    Member("docs/latest", link="../tiny"),
    Member("data/noise.bin", random.Random(0).randbytes(200_000)),
)


def make_sdist(members: Iterable[Member], top: str = "tiny-1.0", prefix: str = "") -> bytes:
    """Return a `.tar.gz` with one top-level folder; the same members give the same bytes."""
    raw = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=raw, mode="wb", mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for member in members:
            info = tarfile.TarInfo(f"{prefix}{top}/{member.path}" if top else member.path)
            info.mode, info.size = member.mode, len(member.data)
            if member.link is not None:
                info.type, info.linkname, info.size = tarfile.SYMTYPE, member.link, 0
            if member.kind is not None:
                info.type, info.linkname = member.kind, f"{top}/pyproject.toml"
            archive.addfile(info, io.BytesIO(member.data))
    return raw.getvalue()


def make_wheel(
    files: Mapping[str, bytes],
    *,
    record: Callable[[dict[str, str]], None] = lambda rows: None,
    executable: frozenset[str] = frozenset(),
) -> bytes:
    """Return a pure wheel with a right RECORD, which ``record`` may then falsify."""
    info = "tiny-1.0.dist-info"
    files = {**files, f"{info}/METADATA": b"Name: tiny\n", f"{info}/WHEEL": b"Wheel-Version: 1.0\n"}
    rows = {name: f"sha256={_b64(data)},{len(data)}" for name, data in files.items()}
    rows[f"{info}/RECORD"] = ","
    record(rows)
    text = "".join(f"{name},{rest}\n" for name, rest in rows.items())
    raw = io.BytesIO()
    with zipfile.ZipFile(raw, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in {**files, f"{info}/RECORD": text.encode()}.items():
            item = zipfile.ZipInfo(name)
            item.external_attr = (0o100755 if name in executable else 0o100664) << 16
            archive.writestr(item, data)
    return raw.getvalue()


def _b64(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


def git_tree(folder: Path) -> str:
    """Return the id of the tree that `git add` makes of a folder, ignoring nothing."""
    env = {
        "PATH": "/usr/bin:/bin:/usr/local/bin",
        "GIT_CONFIG_GLOBAL": "/dev/null",
        "GIT_CONFIG_NOSYSTEM": "1",
    }

    def run(*args: str) -> str:
        command = ["git", "-c", "core.autocrlf=false", *args]
        return subprocess.run(
            command, cwd=folder, env=env, check=True, capture_output=True, text=True
        ).stdout.strip()

    run("init", "--quiet", "--template=")
    (folder / ".git" / "info").mkdir(exist_ok=True)
    # Built-in attributes of the archive itself must not act either: blobs are upstream's bytes.
    (folder / ".git" / "info" / "attributes").write_text("* -text -filter -ident\n")
    run("add", "--all", "--force")
    return run("write-tree")
