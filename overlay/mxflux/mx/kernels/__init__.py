# SPDX-License-Identifier: Apache-2.0
"""Triton kernels; importing one needs triton. Host code lives beside the package, not here."""
