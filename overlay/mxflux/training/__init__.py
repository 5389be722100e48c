# SPDX-License-Identifier: Apache-2.0
"""Training Flux on Megatron-LM."""
