# SPDX-License-Identifier: Apache-2.0
"""Write a wheel whose bytes depend on its content alone."""

from __future__ import annotations

import base64
import hashlib
import io
import zipfile
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from packaging.utils import canonicalize_name

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_WHEEL = "Wheel-Version: 1.0\nGenerator: mxtree\nRoot-Is-Purelib: true\nTag: py3-none-any\n"

# The earliest time that a zip archive can hold.
_TIME = (1980, 1, 1, 0, 0, 0)


@dataclass(frozen=True)
class WheelFile:
    """One member: its bytes, and whether the owner may execute it."""

    data: bytes
    executable: bool = False


@dataclass(frozen=True)
class Wheel:
    """A pure-Python wheel: files to install and files of its .dist-info folder, by path."""

    name: str
    version: str
    metadata: bytes
    files: Mapping[str, WheelFile]
    info: Mapping[str, bytes] = field(default_factory=dict)

    @property
    def stem(self) -> str:
        """Return ``name-version`` as the file name and the .dist-info folder spell it."""
        return f"{canonicalize_name(self.name).replace('-', '_')}-{self.version}"

    @property
    def filename(self) -> str:
        """Return the file name, as the binary distribution format defines it."""
        return f"{self.stem}-py3-none-any.whl"

    def to_bytes(self) -> bytes:
        """Return the archive.

        Members are sorted, the .dist-info folder last; times and modes are fixed. Nothing is
        compressed: deflate's output differs between zlib and its replacements.
        """
        members = {path: self.files[path] for path in sorted(self.files)}
        info = {"METADATA": self.metadata, "WHEEL": _WHEEL.encode(), **self.info}
        for name in sorted(info):
            members[f"{self.stem}.dist-info/{name}"] = WheelFile(info[name])
        record = f"{self.stem}.dist-info/RECORD"
        members[record] = WheelFile(_record(members, record))
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
            for path, member in members.items():
                archive.writestr(_zip_info(path, executable=member.executable), member.data)
        return buffer.getvalue()

    def write(self, folder: Path) -> Path:
        """Write the wheel into ``folder`` (made if need be) in one step and return its path."""
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / self.filename
        partial = path.with_name(f".{path.name}.partial")
        partial.write_bytes(self.to_bytes())
        partial.replace(path)
        return path


def _record(members: Mapping[str, WheelFile], record: str) -> bytes:
    lines = []
    for path, member in members.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(member.data).digest()).rstrip(b"=")
        quoted = f'"{path.replace(chr(34), chr(34) * 2)}"' if set(path) & set(',"') else path
        lines.append(f"{quoted},sha256={digest.decode()},{len(member.data)}\n")
    return "".join([*lines, f"{record},,\n"]).encode()


def _zip_info(path: str, *, executable: bool) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(path, _TIME)
    info.create_system = 3  # Unix, whatever this machine is: it says how to read the modes
    info.external_attr = (0o100755 if executable else 0o100644) << 16
    return info
