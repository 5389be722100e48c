# SPDX-License-Identifier: Apache-2.0
"""Gates by what they fuse; apart from `flux_chains`, whose import switches the interpreter on."""

from __future__ import annotations

CHAINS = (
    "fused_qkv_prologue", "fused_mlp", "fused_ln_pack", "fused_gate_residual", "fused_ln_modulate",
)  # fmt: skip
KERNELS = ("fused_qk_norm_rope", "fused_ln_modulate", "fused_gate_residual")
