# SPDX-License-Identifier: Apache-2.0
"""The attention backend: coerced to the enum once, then turned into TransformerEngine's switches."""

from __future__ import annotations

import os

from megatron.core.transformer.enums import AttnBackend

_VARIABLES = ("NVTE_FLASH_ATTN", "NVTE_FUSED_ATTN", "NVTE_UNFUSED_ATTN")
_SWITCHES = {
    AttnBackend.flash: "100",
    AttnBackend.fused: "010",
    AttnBackend.unfused: "001",
    AttnBackend.local: "000",
}


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
    """Set NVTE_FLASH_ATTN, NVTE_FUSED_ATTN and NVTE_UNFUSED_ATTN before TE's first attention call.

    ``auto`` asks for nothing, so variables that an image presets keep their value. Any other
    backend raises ValueError when a variable is already set to something else.
    Raises TypeError for anything but a member of AttnBackend.
    """
    if not isinstance(backend, AttnBackend):
        raise TypeError(f"attention backend {backend!r} is a {type(backend).__name__}, not a member")
    if backend is AttnBackend.auto:
        for variable in _VARIABLES:
            os.environ.setdefault(variable, "1")
        return
    wanted = dict(zip(_VARIABLES, _SWITCHES[backend], strict=True))
    for variable, value in wanted.items():
        if os.environ.get(variable, value) != value:
            raise ValueError(
                f"{variable}={os.environ[variable]} is set, but attention_backend={backend.name} "
                f"needs {variable}={value}: unset it"
            )
    os.environ.update(wanted)
