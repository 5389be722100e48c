# SPDX-License-Identifier: Apache-2.0
"""Rules between keys: what cannot run together, and what would have no effect."""

from __future__ import annotations

from .finding import UNCHECKED, Finding, find_problems

__all__ = ["UNCHECKED", "Finding", "find_problems"]
