# SPDX-License-Identifier: Apache-2.0
"""Puts this folder and the tiny Flux on the import path, here and in the ranks that tests start."""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "flux")]
