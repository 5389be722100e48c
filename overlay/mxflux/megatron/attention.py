# SPDX-License-Identifier: Apache-2.0
"""NVTE_*_ATTN from the attention backend, also where the container image has preset them.

Transformer Engine chooses among the backends that NVTE_FLASH_ATTN, NVTE_FUSED_ATTN and
NVTE_UNFUSED_ATTN leave open (unset counts as 1). ROCm images preset some of them. Then:

* ``auto`` keeps what is preset and opens the rest;
* an explicit choice wins over the preset: all three are set, and one line logs before -> after;
* it is an error if Transformer Engine has already selected a backend and the values would change:
  it caches its selection, so the new values might not take effect.
"""

from __future__ import annotations

import logging
import os
import sys
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from megatron.core.transformer.enums import AttnBackend

logger = logging.getLogger(__name__)

CHOICES = ("flash", "fused", "unfused")
_TE_ATTENTION = "transformer_engine.pytorch.attention.dot_product_attention.dot_product_attention"


def attention_environment(backend_name: str) -> dict[str, str]:
    """NVTE_*_ATTN values for the name of an ``AttnBackend``: local closes all, auto opens all."""
    return {
        f"NVTE_{choice.upper()}_ATTN": str(int(backend_name in (choice, "auto")))
        for choice in CHOICES
    }


def set_attention_environment(backend: AttnBackend) -> None:
    """Make ``backend`` the choice of Transformer Engine's attention in this process.

    Call it before the first attention call, as ``LanguageModule`` does for its subclasses.

    Raises:
        TypeError: ``backend`` is no ``AttnBackend``, for example its name.
        RuntimeError: Transformer Engine has selected a backend already, or cannot tell.
    """
    if getattr(backend, "name", None) not in (*CHOICES, "local", "auto"):
        raise TypeError(f"{backend!r} is no AttnBackend: use AttnBackend.from_name({backend!r}).")
    wanted = attention_environment(backend.name)
    before = {name: os.environ.get(name, "").strip() for name in wanted}
    if backend.name == "auto":
        wanted = {name: before[name] or value for name, value in wanted.items()}
    if wanted == before:
        return
    change = ", ".join(f"{name} {before[name] or 'unset'} -> {wanted[name]}" for name in wanted)
    if any((before[name] or "1") != wanted[name] for name in wanted):
        _refuse_when_selected(backend.name, wanted, change)
    os.environ.update(wanted)
    if _is_first_rank():
        level = logging.WARNING if any(before.values()) else logging.INFO
        logger.log(level, "attention_backend=%s sets %s", backend.name, change)


def _refuse_when_selected(backend_name: str, wanted: dict[str, str], change: str) -> None:
    module = sys.modules.get(_TE_ATTENTION)
    if module is None:
        return
    cache = getattr(module, "_attention_backends", None)
    if isinstance(cache, dict) and cache.get("attention_params") is None:
        return
    reason = (
        "Transformer Engine has already selected its attention backend"
        if isinstance(cache, dict)
        else "this Transformer Engine does not tell whether it has selected its attention backend"
    )
    exports = " ".join(f"{name}={value}" for name, value in wanted.items())
    raise RuntimeError(
        f"attention_backend={backend_name} would set {change}, but {reason}. "
        f"Set the backend before the first attention call, or start with: export {exports}"
    )


def _is_first_rank() -> bool:
    return not torch.distributed.is_initialized() or torch.distributed.get_rank() == 0
