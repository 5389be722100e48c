# SPDX-License-Identifier: Apache-2.0
"""Pre-encoded data: loaders for a run, encoders, and data sets on disk."""

from __future__ import annotations

from .build import build_loaders, empty_encodings
from .errors import DataError
from .loader import Loader
from .settings import DataSettings, SampleShape, settings_of

__all__ = [
    "DataError",
    "DataSettings",
    "Loader",
    "SampleShape",
    "build_loaders",
    "empty_encodings",
    "settings_of",
]
