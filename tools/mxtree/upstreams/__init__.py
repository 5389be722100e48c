# SPDX-License-Identifier: Apache-2.0
"""Pinned upstream releases: where they come from and how they enter the cache, unchanged."""

from mxtree.upstreams.config import Release, Upstream, Upstreams
from mxtree.upstreams.imports import Imported, ensure_imported
from mxtree.upstreams.load import load_upstreams
from mxtree.upstreams.source import Source

__all__ = [
    "Imported",
    "Release",
    "Source",
    "Upstream",
    "Upstreams",
    "ensure_imported",
    "load_upstreams",
]
