# SPDX-License-Identifier: Apache-2.0
"""Recipes: one YAML file says everything about a run, checked before anything starts.

Nothing here imports torch, so that recipes can be read, checked and compared anywhere. The
exceptions say so in their first line.
"""

from __future__ import annotations

from .errors import Problem, RecipeError
from .loading import Loaded, load
from .nodes import Origin
from .schema import Recipe

__all__ = ["Loaded", "Origin", "Problem", "Recipe", "RecipeError", "load"]
