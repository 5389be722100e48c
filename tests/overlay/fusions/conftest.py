# SPDX-License-Identifier: Apache-2.0
"""The tests of mxflux.fusions import their helpers by name, and mxflux from the overlay."""

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
for path in (str(HERE), str(HERE.parents[2] / "overlay")):
    if path not in sys.path:
        sys.path.insert(0, path)
