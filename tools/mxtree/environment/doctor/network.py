# SPDX-License-Identifier: Apache-2.0
"""Whether the package index that pip is configured with answers."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from mxtree.cache import is_offline
from mxtree.environment.doctor.row import missing, ok, wrong
from mxtree.errors import FatalError
from mxtree.upstreams.index import Index
from mxtree.upstreams.pip_settings import read_pip_settings
from mxtree.upstreams.session import open_session

if TYPE_CHECKING:
    from mxtree.environment.doctor.row import Row

_NAME = "package index"
_TIMEOUT_S = 5.0


def package_index(package: str = "megatron-core") -> Row:
    """Ask for the files of ``package``, as `mxtree fetch` would; once, and not for long."""
    if is_offline():
        return ok(_NAME, "not asked, MXTREE_OFFLINE is set: the cache has to do")
    try:
        settings = read_pip_settings()
    except FatalError as error:
        return wrong(_NAME, error.message, "correct pip's configuration", required=True)
    settings = dataclasses.replace(settings, timeout_s=_TIMEOUT_S, retries=0)
    index = Index(open_session(settings), settings)
    prefix = package.replace("-", "_")
    offer = next(index.offers(package, lambda file: file.startswith(prefix)), None)
    if offer is not None:
        return ok(_NAME, f"{offer.place} has {package}", required=True)
    fix = "check the network and pip's configuration, or work from the cache: MXTREE_OFFLINE=1"
    return missing(_NAME, "; ".join(index.notes) or f"no {package}", fix, required=True)
