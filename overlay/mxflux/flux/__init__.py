# SPDX-License-Identifier: Apache-2.0
"""Flux (MMDiT text-to-image): architecture, blocks, layer specs and model on Megatron-core.

Modules that need Megatron: ``config``, ``attention``, ``blocks``, ``layer_specs``,
``transformer``, ``model``. The others need torch alone.
"""
