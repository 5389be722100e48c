# SPDX-License-Identifier: Apache-2.0
"""Fused kernels of Flux's blocks: QK-norm + RoPE, LN-modulate, gated residual; their gates.

Importing this package loads neither torch nor triton. The modules: `norm_rope` (per tensor and
whole QKV), `ln_modulate`, `gate_residual`, `rope_table`, `gates`, `reference` (the unfused chains).
"""
