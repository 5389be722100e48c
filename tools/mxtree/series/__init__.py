# SPDX-License-Identifier: Apache-2.0
"""Patch series as files: the list, the patches, their header fields, their canonical bytes."""

from mxtree.series.load import Series, load_series
from mxtree.series.patch import Patch
from mxtree.series.problems import Problem

__all__ = ["Patch", "Problem", "Series", "load_series"]
