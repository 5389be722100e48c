# SPDX-License-Identifier: Apache-2.0
"""Receive a URL into a `.part` file, going on where an earlier attempt stopped."""

from __future__ import annotations

import os
from http import HTTPStatus
from typing import TYPE_CHECKING

import requests

from mxtree.upstreams.progress import show

if TYPE_CHECKING:
    from pathlib import Path

    from mxtree.upstreams.index import Offer
    from mxtree.upstreams.pip_settings import PipSettings

# What is lost of a connection that breaks.
_CHUNK = 1 << 14
#: Attempts after the first; a broken connection is cheap to take up again.
_RETRIES = 5

_BROKEN = (
    requests.exceptions.ChunkedEncodingError,
    requests.exceptions.ConnectionError,
    requests.exceptions.Timeout,
)


def receive(session: requests.Session, settings: PipSettings, offer: Offer, part: Path) -> int:
    """Receive the offered file into ``part`` and return the number of bytes received.

    A connection that breaks is taken up again with an HTTP range; a server that does not know
    ranges sends all. Raises `requests.RequestException` when it does not get to the end, and
    leaves ``part`` for the next run.
    """
    left = _RETRIES if settings.retries is None else settings.retries
    received = 0
    while True:
        before = _size(part)
        try:
            return received + _attempt(session, settings, offer, part)
        except _BROKEN:
            received += max(0, _size(part) - before)
            left -= 1
            if left < 0:
                raise


def _attempt(session: requests.Session, settings: PipSettings, offer: Offer, part: Path) -> int:
    have = _size(part)
    # `identity`: a server that compresses a .tar.gz once more would change its bytes.
    headers = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={have}-"} if have else {})
    with session.get(offer.url, headers=headers, stream=True, timeout=settings.timeout_s) as answer:
        if answer.status_code == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
            part.unlink()
            return _attempt(session, settings, offer, part)
        answer.raise_for_status()
        start = have if _continues(answer, have) else 0
        return _write(answer, offer.file, part, start)


def _continues(answer: requests.Response, have: int) -> bool:
    partial = answer.status_code == HTTPStatus.PARTIAL_CONTENT
    return partial and answer.headers.get("Content-Range", "").startswith(f"bytes {have}-")


def _write(answer: requests.Response, label: str, part: Path, start: int) -> int:
    length = answer.headers.get("Content-Length")
    total = start + int(length) if length and length.isdigit() else None
    received = 0
    with part.open("ab" if start else "wb") as stream, show(label, total, start) as count:
        for chunk in answer.iter_content(_CHUNK):
            stream.write(chunk)
            received += len(chunk)
            count(len(chunk))
        stream.flush()
        os.fsync(stream.fileno())
    return received


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
