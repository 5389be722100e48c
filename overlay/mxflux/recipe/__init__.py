# SPDX-License-Identifier: Apache-2.0
"""Recipes: one YAML file says everything about a run, checked before anything starts.

Nothing here imports torch, so that recipes can be read, checked and compared anywhere. The
exceptions say so in their first line.
"""
