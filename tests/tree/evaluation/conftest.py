# SPDX-License-Identifier: Apache-2.0
"""Puts this folder on the import path of the tests and, through it, of their ranks."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
