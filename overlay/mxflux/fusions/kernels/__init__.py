# SPDX-License-Identifier: Apache-2.0
"""Triton kernels only: no torch, no launch code, one module an op."""
