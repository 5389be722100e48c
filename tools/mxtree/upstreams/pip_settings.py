# SPDX-License-Identifier: Apache-2.0
"""The package indexes, certificates and proxy that the user gave pip.

pip's own rules: files by rising precedence global, user, of the environment, PIP_CONFIG_FILE;
``[install]`` over ``[global]``; PIP_* variables over all; an empty value counts as not given.
"""

from __future__ import annotations

import configparser
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from platformdirs import site_config_dir, user_config_dir, user_data_dir

from mxtree.errors import FatalError

if TYPE_CHECKING:
    from collections.abc import Iterator

_NAME = "pip.conf"
_NOT_OPTIONS = {"PIP_CONFIG_FILE", "PIP_VERSION", "PIP_HELP"}
_ALIASES = {"pypi-url": "index-url", "default-timeout": "timeout"}
_TRUE = {"y", "yes", "t", "true", "on", "1"}


@dataclass(frozen=True)
class PipSettings:
    """What pip would use to reach packages; None and () where the user gave nothing."""

    index_url: str | None = None
    extra_index_urls: tuple[str, ...] = ()
    find_links: tuple[str, ...] = ()
    no_index: bool = False
    cert: str | None = None
    client_cert: str | None = None
    proxy: str | None = None
    trusted_hosts: tuple[str, ...] = ()
    timeout_s: float = 15.0
    retries: int | None = None


def read_pip_settings() -> PipSettings:
    """Return pip's settings from its files and variables.

    Raises `FatalError` on a file that pip could not read either, or a number that is none.
    """
    values = _values()
    return PipSettings(
        index_url=values.get("index-url"),
        extra_index_urls=tuple(values.get("extra-index-url", "").split()),
        find_links=tuple(values.get("find-links", "").split()),
        no_index=values.get("no-index", "").lower() in _TRUE,
        cert=values.get("cert"),
        client_cert=values.get("client-cert"),
        proxy=values.get("proxy"),
        trusted_hosts=tuple(values.get("trusted-host", "").split()),
        timeout_s=_number(values, "timeout", 15.0),
        retries=int(_number(values, "retries", -1.0)) if "retries" in values else None,
    )


def _number(values: dict[str, str], key: str, default: float) -> float:
    try:
        return float(values.get(key, default))
    except ValueError as error:
        raise FatalError(f"pip's setting {key} is not a number: {values[key]!r}") from error


def _values() -> dict[str, str]:
    """Return the value of each option that is not empty, by its long name."""
    by_section: dict[str, dict[str, str]] = {"global": {}, "install": {}}
    for path in config_files():
        for section, options in _read(path).items():
            by_section.setdefault(section, {}).update(options)
    found: dict[str, str] = {}
    for options in (by_section["global"], by_section["install"], _environment()):
        found |= {key: value for key, value in options.items() if value}
    return found


def config_files() -> list[Path]:
    """Return the configuration files that pip would read, by rising precedence."""
    named = os.environ.get("PIP_CONFIG_FILE")
    if named == os.devnull:
        return []
    # A named file replaces the user's own ones, as pip has it.
    users = [] if named and Path(named).exists() else list(_user_files())
    last = [Path(named)] if named else []
    return [*_global_files(), *users, Path(sys.prefix, _NAME), *last]


def _global_files() -> Iterator[Path]:
    if sys.platform == "darwin":
        yield Path("/Library/Application Support/pip", _NAME)
        return
    for folder in site_config_dir("pip", appauthor=False, multipath=True).split(os.pathsep):
        yield Path(folder, _NAME)
    yield Path("/etc", _NAME)


def _user_files() -> Iterator[Path]:
    yield Path("~/.pip", _NAME).expanduser()
    if sys.platform == "darwin":
        native = Path(user_data_dir("pip", appauthor=False))
        yield (native if native.is_dir() else Path("~/.config/pip").expanduser()) / _NAME
    else:
        yield Path(user_config_dir("pip", appauthor=False), _NAME)


def _read(path: Path) -> dict[str, dict[str, str]]:
    parser = configparser.RawConfigParser()
    try:
        parser.read(path, encoding="utf-8")
    except (configparser.Error, UnicodeDecodeError, OSError) as error:
        raise FatalError(f"pip's configuration {path} cannot be read: {error}") from error
    return {
        section: {_normal(key): value for key, value in parser.items(section)}
        for section in parser.sections()
    }


def _environment() -> dict[str, str]:
    return {
        _normal(name.removeprefix("PIP_")): value
        for name, value in os.environ.items()
        if name.startswith("PIP_") and name not in _NOT_OPTIONS
    }


def _normal(key: str) -> str:
    name = key.lower().replace("_", "-").removeprefix("--")
    return _ALIASES.get(name, name)


def local_path(location: str) -> Path | None:
    """Return the folder or file that a file URL or plain path names, None for other URLs."""
    parts = urlsplit(location)
    if parts.scheme == "file":
        return Path(unquote(parts.path))
    return None if parts.scheme else Path(location).expanduser()
