# SPDX-License-Identifier: Apache-2.0
"""The attention backend: coerced to the enum once, then handed to TransformerEngine's switches."""

from __future__ import annotations

from megatron.core.transformer.enums import AttnBackend

from mxflux.megatron.attention import set_attention_environment


def coerce_attention_backend(value: AttnBackend | str | None) -> AttnBackend:
    """Member for a name; absent or blank is ``auto``.

    Names are case-sensitive. Raises ValueError naming the raw value and the valid names.
    """
    if isinstance(value, AttnBackend):
        return value
    if value is None or not value.strip():
        return AttnBackend.auto
    try:
        return AttnBackend[value.strip()]
    except KeyError:
        names = [member.name for member in AttnBackend]
        raise ValueError(f"Unknown attention_backend {value!r}. Choose from: {names}.") from None


def set_attention_backend(backend: AttnBackend) -> None:
    """Make ``backend`` TransformerEngine's choice, before its first attention call.

    Raises TypeError for anything but a member of AttnBackend (a name would match no branch
    upstream and be ignored).
    """
    if not isinstance(backend, AttnBackend):
        raise TypeError(
            f"attention backend {backend!r} is a {type(backend).__name__}, not a member"
        )
    set_attention_environment(backend)
