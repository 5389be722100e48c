# SPDX-License-Identifier: Apache-2.0
"""Carry a series to another upstream release: 3-way, patch by patch, with real states."""
