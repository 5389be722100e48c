# SPDX-License-Identifier: Apache-2.0
"""Puts this folder on the import path: `import fusions_support` works in every test of the fusions."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
