# SPDX-License-Identifier: Apache-2.0
"""Puts this folder on the import path: `import triton_interpreter` works in every test below it."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
