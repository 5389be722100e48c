# SPDX-License-Identifier: Apache-2.0
"""The code behind the hooks of patches/megatron-lm."""
