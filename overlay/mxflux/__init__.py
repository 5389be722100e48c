# SPDX-License-Identifier: Apache-2.0
"""Flux in MXFP4 and MXFP6 on patched Megatron-LM and TransformerEngine."""

__version__ = "0.1.0.dev0"
