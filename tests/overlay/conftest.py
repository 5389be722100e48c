# SPDX-License-Identifier: Apache-2.0
"""Puts this folder on the import path: `import triton_interpreter` works in every test below it."""
