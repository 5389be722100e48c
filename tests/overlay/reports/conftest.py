# SPDX-License-Identifier: Apache-2.0
"""Puts this folder and that of evaluation's tests (`mlperf_support`) on the import path."""

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "evaluation")]
