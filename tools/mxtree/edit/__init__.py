# SPDX-License-Identifier: Apache-2.0
"""The edit loop: commits of a tree become the series again."""
