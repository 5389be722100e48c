# SPDX-License-Identifier: Apache-2.0
"""Rules of `expect_overridden`: only keys that exist and can change on the way."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .finding import Finding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mxflux.recipe.schema import Recipe


def _known(r: Recipe) -> Iterator[Finding]:
    from mxflux.recipe.keys import all_keys
    from mxflux.recipe.megatron_arguments import ARGUMENTS
    from mxflux.recipe.messages import unknown_key_hint

    for key in r.expect_overridden:
        if key not in all_keys():
            message = f"expect_overridden: unknown key {key!r}"
            yield Finding("expect_overridden", message, unknown_key_hint(key))
        elif key not in ARGUMENTS:
            message = f"expect_overridden: {key} is no argument of Megatron"
            yield Finding("expect_overridden", message, "nothing changes it on the way")


RULES = (_known,)
