# SPDX-License-Identifier: Apache-2.0
"""Puts this folder on the import path: `import evaluation_support` works in its tests."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
