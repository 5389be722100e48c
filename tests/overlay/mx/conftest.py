# SPDX-License-Identifier: Apache-2.0
"""The tests of mxflux.mx import their helpers by name, and mxflux from the overlay."""

from __future__ import annotations

import os
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
for path in (str(HERE), str(HERE.parent), str(HERE.parents[2] / "overlay")):
    if path not in sys.path:
        sys.path.insert(0, path)
os.environ.setdefault("OMP_NUM_THREADS", "1")

# Before any test module imports triton: its own functions too must be the interpreter's.
import triton_interpreter  # noqa: E402, F401
