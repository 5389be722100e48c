# SPDX-License-Identifier: Apache-2.0
"""Apply a patch series to a commit, with the result of `git am`, in memory."""

from mxtree.engine.apply import apply_prefix, apply_series
from mxtree.engine.model import Applied, ConflictError, Fit

__all__ = ["Applied", "ConflictError", "Fit", "apply_prefix", "apply_series"]
