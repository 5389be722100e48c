# SPDX-License-Identifier: Apache-2.0
"""Pictures from a trained Flux: checkpoint to model, prompt to latents, latents to PNG."""
