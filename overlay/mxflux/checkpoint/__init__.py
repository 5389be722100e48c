# SPDX-License-Identifier: Apache-2.0
"""Flux weights in and out: diffusers, BFL and Megatron checkpoints, verified tensor by tensor."""
