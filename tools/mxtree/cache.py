# SPDX-License-Identifier: Apache-2.0
"""The user's cache: downloads, imported releases, built trees."""

from __future__ import annotations

import os
from pathlib import Path

from platformdirs import user_cache_path


def cache_dir() -> Path:
    """Return the cache folder: MXTREE_CACHE, else the platform's cache folder of this user."""
    named = os.environ.get("MXTREE_CACHE")
    return Path(named).absolute() if named else user_cache_path("mxtree", appauthor=False)


def is_offline() -> bool:
    """Return whether MXTREE_OFFLINE forbids every use of the network."""
    return os.environ.get("MXTREE_OFFLINE", "").strip().lower() not in {"", "0", "false", "no"}
