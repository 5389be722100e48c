# SPDX-License-Identifier: Apache-2.0
"""Why a report cannot be made."""

from __future__ import annotations


class ReportError(ValueError):
    """What is missing or cannot be read, and what to do; nothing was checked."""
