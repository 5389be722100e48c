# SPDX-License-Identifier: Apache-2.0
"""Read `patches/upstreams.toml` strictly: every problem at once, each with its line and key."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import tomllib
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from mxtree.errors import FatalError
from mxtree.upstreams.config import Packaging, Release, Upstream, Upstreams, nearest
from mxtree.upstreams.toml_lines import key_lines

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from pydantic_core import ErrorDetails

    from mxtree.project import Project

SUFFIXES: Mapping[str, str] = {"sdist": ".tar.gz", "wheel": "-none-any.whl"}


def _text(pattern: str) -> StringConstraints:
    return StringConstraints(pattern=rf"^(?:{pattern})$")


# Names and versions become folder names and refs, so they are kept plain.
_Name = Annotated[str, _text(r"[a-z0-9]+(?:[.-][a-z0-9]+)*")]
_Version = Annotated[
    str, _text(r"[0-9]+(?:\.[0-9]+)*(?:(?:a|b|rc)[0-9]+)?(?:\.post[0-9]+)?(?:\.dev[0-9]+)?")
]
_Tag = Annotated[str, _text(r"[A-Za-z0-9_]+(?:[.+-][A-Za-z0-9_]+)*")]
_TagPattern = Annotated[str, _text(r"[A-Za-z0-9_+-]*\{version\}[A-Za-z0-9_+-]*")]
_File = Annotated[str, _text(r"[A-Za-z0-9_][A-Za-z0-9_.+-]*")]
_Sha256 = Annotated[str, _text(r"[0-9a-f]{64}")]
_GitId = Annotated[str, _text(r"[0-9a-f]{40}")]
_Url = Annotated[str, _text(r"[a-z][a-z0-9+]*://\S+|/\S+")]


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class _ReleaseTable(_Table):
    file: _File
    sha256: _Sha256
    tree: _GitId
    commit: _GitId | None = None
    tag: _Tag | None = None


class _UpstreamTable(_Table):
    package: _Name
    packaging: Packaging
    default: _Version
    repository: _Url
    tag: _TagPattern
    release: Annotated[dict[_Version, _ReleaseTable], Field(min_length=1)]


class _Document(_Table):
    schema_: Annotated[Literal[1], Field(alias="schema")]
    upstream: Annotated[dict[_Name, _UpstreamTable], Field(min_length=1)]


def load_upstreams(project: Project) -> Upstreams:
    """Return what the project's `patches/upstreams.toml` pins.

    Raises `FatalError` that lists every problem of the file as ``line: key: what``.
    """
    path = project.upstreams_file
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise FatalError(f"{path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise FatalError(f"{path} is not UTF-8: {error}") from error
    return parse_upstreams(text, path)


def parse_upstreams(text: str, path: Path) -> Upstreams:
    """Return what the text of an `upstreams.toml` pins; ``path`` is for messages.

    Raises `FatalError` as `load_upstreams` does.
    """
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise FatalError(f"{path} is not TOML: {error}") from error
    lines = key_lines(text)
    try:
        document = _Document.model_validate(data)
    except ValidationError as error:
        problems = [_describe(item, lines) for item in error.errors(include_url=False)]
    else:
        problems = list(_inconsistencies(document, lines))
        if not problems:
            return _upstreams(document)
    raise FatalError(f"{path} has {_count(problems)}", details=problems)


def _count(problems: list[str]) -> str:
    return "a problem" if len(problems) == 1 else f"{len(problems)} problems"


def _describe(error: ErrorDetails, lines: Mapping[tuple[str, ...], int]) -> str:
    # Pydantic puts "[key]" behind a key that itself is wrong.
    key = tuple(str(part) for part in error["loc"] if part != "[key]")
    message = error["msg"]
    if error["type"] == "extra_forbidden":
        message = f"unknown key; did you mean {nearest(key[-1], _keys_beside(key), 1)[0]}?"
    elif error["type"] == "missing":
        message = "missing"
    elif error["type"] == "string_pattern_mismatch":
        message = f"{error['input']!r} does not match {error['ctx']['pattern']}"
    return _problem(key, message, lines)


def _keys_beside(key: tuple[str, ...]) -> list[str]:
    tables: dict[int, type[_Table]] = {1: _Document, 3: _UpstreamTable}
    table = tables.get(len(key), _ReleaseTable)
    return [field.alias or name for name, field in table.model_fields.items()]


def _problem(key: tuple[str, ...], message: str, lines: Mapping[tuple[str, ...], int]) -> str:
    known = next((key[:n] for n in range(len(key), 0, -1) if key[:n] in lines), ())
    line = f"line {lines[known]}: " if known else ""
    return f"{line}{_dotted(key)}: {message}"


def _dotted(key: tuple[str, ...]) -> str:
    return ".".join(f'"{part}"' if "." in part else part for part in key)


def _inconsistencies(document: _Document, lines: Mapping[tuple[str, ...], int]) -> Iterator[str]:
    for name, upstream in document.upstream.items():
        key = ("upstream", name)
        if upstream.default not in upstream.release:
            near = ", ".join(nearest(upstream.default, upstream.release))
            message = f"{upstream.default!r} is no release below; nearest: {near}"
            yield _problem((*key, "default"), message, lines)
        suffix = SUFFIXES[upstream.packaging]
        for version, release in upstream.release.items():
            if not release.file.endswith(suffix) or version not in release.file:
                message = f"{release.file!r} is not the {upstream.packaging} of {version}"
                yield _problem((*key, "release", version, "file"), message, lines)


def _upstreams(document: _Document) -> Upstreams:
    return Upstreams({name: _upstream(name, table) for name, table in document.upstream.items()})


def _upstream(name: str, table: _UpstreamTable) -> Upstream:
    return Upstream(
        name=name,
        package=table.package,
        packaging=table.packaging,
        default=table.default,
        repository=table.repository,
        tag_pattern=table.tag,
        releases={
            version: Release(
                version=version,
                tag=release.tag or table.tag.format(version=version),
                file=release.file,
                sha256=release.sha256,
                commit=release.commit,
                tree=release.tree,
            )
            for version, release in table.release.items()
        },
    )
