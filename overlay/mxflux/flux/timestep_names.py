# SPDX-License-Identifier: Apache-2.0
"""Names of the timestep sampling strategies, shared by the config and the samplers."""

TIMESTEP_STRATEGIES = ("logit_normal", "uniform", "direct_uniform", "mode")
