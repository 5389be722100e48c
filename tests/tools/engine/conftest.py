# SPDX-License-Identifier: Apache-2.0
"""Make the helpers of this room importable: the reference and the histories."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
