# SPDX-License-Identifier: Apache-2.0
"""Bring a pinned file into the cache: resumed, hashed, then renamed into place."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

import requests

from mxtree.cache import cache_dir, is_offline
from mxtree.errors import ExitCode, FatalError
from mxtree.locks import hold
from mxtree.upstreams.index import Index, Offer, reason
from mxtree.upstreams.pip_settings import read_pip_settings
from mxtree.upstreams.session import open_session
from mxtree.upstreams.transfer import receive

if TYPE_CHECKING:
    from pathlib import Path

    from mxtree.upstreams.config import Release, Upstream

_LOCK_TIMEOUT_S = 600.0


@dataclass(frozen=True)
class Download:
    """A file of the cache and how many bytes were received for it now (None: it was there)."""

    path: Path
    received: int | None


def ensure_downloaded(upstream: Upstream, release: Release) -> Download:
    """Return the release's file from the cache, downloading it first when it is not there.

    Raises `FatalError` when no index has it, when its hash is not the pinned one, or when the
    network is needed and missing or forbidden.
    """
    path = cache_dir() / "downloads" / release.sha256 / release.file
    with hold(path, timeout_s=_LOCK_TIMEOUT_S):
        if path.exists():
            if file_hash(path) == release.sha256:
                return Download(path, None)
            path.replace(_aside(path))
        return Download(path, _download(upstream, release, path))


def _download(upstream: Upstream, release: Release, path: Path) -> int:
    settings = read_pip_settings()
    part = path.with_name(path.name + ".part")
    with open_session(settings) as session:
        index = Index(session, settings, offline=is_offline())
        for offer in index.offers(upstream.package, release.file.__eq__):
            received = _try_offer(index, offer, release, part)
            if received is not None:
                part.replace(path)
                return received
    raise _not_found(upstream, release, index)


def _try_offer(index: Index, offer: Offer, release: Release, part: Path) -> int | None:
    """Return the bytes received; None, and a note, when the offer does not give the file."""
    if offer.sha256 not in {None, release.sha256}:
        _note_wrong(index, offer, offer.sha256 or "", release)
        return None
    try:
        return _receive_whole(index, offer, release, part)
    except requests.RequestException as error:
        index.unreachable = True
        index.notes.append(f"{offer.place}: {reason(error)}")
        return None
    except OSError as error:
        raise FatalError(
            f"{part} cannot be written: {error.strerror}",
            hint="make room, or name another folder: MXTREE_CACHE=/path",
            code=ExitCode.COULD_NOT_CHECK,
        ) from error


def _receive_whole(index: Index, offer: Offer, release: Release, part: Path) -> int | None:
    resumed = part.exists()
    received = receive(index.session, index.settings, offer, part)
    found = file_hash(part)
    if found != release.sha256 and resumed:
        # The kept beginning may be of another file: once more, from nothing.
        part.unlink()
        received += receive(index.session, index.settings, offer, part)
        found = file_hash(part)
    if found == release.sha256:
        return received
    aside = _aside(part)
    part.replace(aside)
    _note_wrong(index, offer, found, release)
    index.notes.append(f"  the wrong file is kept as {aside}")
    return None


def _note_wrong(index: Index, offer: Offer, found: str, release: Release) -> None:
    index.wrong = True
    index.notes += [
        f"{offer.place}: {release.file} has another sha256",
        f"  expected {release.sha256}",
        f"  got      {found}",
    ]


def _aside(path: Path) -> Path:
    return path.with_name(path.name.removesuffix(".part") + ".wrong")


def _not_found(upstream: Upstream, release: Release, index: Index) -> FatalError:
    command = f"mxtree fetch {upstream.name}@{release.version}"
    if index.offline:
        message = f"{release.file} is not in the cache, and MXTREE_OFFLINE forbids the network"
        hint = f"fetch it once with the network: MXTREE_OFFLINE=0 {command}"
    elif index.wrong:
        message = f"no index has the pinned {release.file}: the hash differs"
        hint = "do not trust that index, or correct the pin in patches/upstreams.toml"
    elif index.unreachable:
        message = f"{release.file} is not in the cache and could not be fetched"
        hint = f"check the network and `pip config list`, then: {command}"
    else:
        message = f"no index that pip is configured with has {release.file}"
        hint = f"check `pip config list` and `pip index versions {upstream.package}`"
    code = ExitCode.CHECK_FAILED if index.wrong else ExitCode.COULD_NOT_CHECK
    return FatalError(message, details=index.notes, hint=hint, code=code)


def file_hash(path: Path) -> str:
    """Return the sha256 (hex) of a file."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
