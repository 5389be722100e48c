# SPDX-License-Identifier: Apache-2.0
"""From a recipe to processes: plan, environment, run directory, ranks. Nothing imports torch."""
