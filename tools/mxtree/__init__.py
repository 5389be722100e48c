# SPDX-License-Identifier: Apache-2.0
"""Turn pinned upstream releases and patch series into one verified training tree."""

__version__ = "0.1.0.dev0"
