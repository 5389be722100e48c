# SPDX-License-Identifier: Apache-2.0
"""What of the user's git configuration may act here: how to reach a repository, nothing else."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from mxtree.cache import is_offline
from mxtree.git import hermetic_env

# Credentials, proxies, certificates, URL rewrites, ssh; and whose repositories may be read.
_SECTIONS = ("credential.", "http.", "protocol.", "ssh.", "url.")
_KEYS = {"core.askpass", "core.gitproxy", "core.sshcommand", "safe.directory"}
_VARIABLES = ("GIT_ASKPASS", "GIT_PROXY_", "GIT_SSH", "GIT_SSL_", "GIT_HTTP_")
_USER_SCOPES = {b"system", b"global", b"command"}


def transport_env() -> dict[str, str]:
    """Return the hermetic environment plus the user's settings for transport.

    Under MXTREE_OFFLINE git may use local repositories only, also for objects that a partial clone
    would fetch by itself.
    """
    env = hermetic_env()
    env |= {key: value for key, value in os.environ.items() if key.startswith(_VARIABLES)}
    count = int(env["GIT_CONFIG_COUNT"])
    for index, (key, value) in enumerate(_user_settings(), start=count):
        env |= {f"GIT_CONFIG_KEY_{index}": key, f"GIT_CONFIG_VALUE_{index}": value}
        count = index + 1
    env["GIT_CONFIG_COUNT"] = str(count)
    if is_offline():
        env |= {"GIT_ALLOW_PROTOCOL": "file", "GIT_NO_LAZY_FETCH": "1"}
    return env


def _user_settings() -> list[tuple[str, str]]:
    """Return the user's settings for transport, in git's order."""
    # Not through mxtree.git: it is deaf to the configuration that is asked for here.
    env = {key: value for key, value in os.environ.items() if key not in {"GIT_DIR", "GIT_CONFIG"}}
    listing = subprocess.run(
        ["git", "-C", Path("/"), "config", "--list", "-z", "--show-scope", "--includes"],
        env=env,
        capture_output=True,
        check=False,
    ).stdout
    fields = listing.split(b"\0")
    pairs = zip(fields[::2], fields[1::2], strict=False)
    return [_pair(item) for scope, item in pairs if scope in _USER_SCOPES and _is_transport(item)]


def _is_transport(item: bytes) -> bool:
    key = os.fsdecode(item.partition(b"\n")[0])
    return key.startswith(_SECTIONS) or key in _KEYS


def _pair(item: bytes) -> tuple[str, str]:
    # A key without a value means true.
    key, separator, value = os.fsdecode(item).partition("\n")
    return key, value if separator else "true"
