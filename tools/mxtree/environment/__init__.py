# SPDX-License-Identifier: Apache-2.0
"""Environments: where a tree is installed, tested and looked over."""
