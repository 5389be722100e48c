# SPDX-License-Identifier: Apache-2.0
"""Puts this folder on the import path: `import native_folder` works in its tests."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
