# SPDX-License-Identifier: Apache-2.0
"""Check everything in patches/ in one pass."""

from mxtree.lint.model import Report
from mxtree.lint.run import lint

__all__ = ["Report", "lint"]
