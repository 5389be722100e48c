# SPDX-License-Identifier: Apache-2.0
"""Rectified flow: the noisy latents, the velocity target and the losses (arXiv 2209.03003)."""

from __future__ import annotations

import torch
from torch import Tensor


def add_noise(latents: Tensor, noise: Tensor, sigma: Tensor) -> Tensor:
    """(1 - sigma) * latents + sigma * noise; latents, noise [B,C,H,W], sigma [B].

    Computed in fp32 from the given (already rounded) sigma and rounded to latents.dtype once.
    """
    level = sigma.float().view(-1, *[1] * (latents.dim() - 1))
    return ((1 - level) * latents.float() + level * noise.float()).to(latents.dtype)


def velocity_target(latents: Tensor, noise: Tensor) -> Tensor:
    """noise - latents in fp32."""
    return noise.float() - latents.float()


def training_loss(
    prediction: Tensor, latents: Tensor, noise: Tensor, loss_mask: Tensor | None = None
) -> Tensor:
    """Mean squared error in fp32, over all elements or over those that ``loss_mask`` selects.

    ``loss_mask`` broadcasts against [B,C,H,W]; the denominator is the number of selected
    elements after broadcasting. Raises ValueError when it selects none.
    """
    squared = (prediction.float() - velocity_target(latents, noise)).square()
    if loss_mask is None:
        return squared.mean()
    weights = loss_mask.to(squared.dtype).expand_as(squared)
    count = weights.sum()
    if not count > 0:
        raise ValueError("loss_mask selects no element")
    return (squared * weights).sum() / count


def per_sample_losses(prediction: Tensor, latents: Tensor, noise: Tensor) -> Tensor:
    """Mean squared error of each sample, fp64 [B]: squared in fp32, averaged in fp64."""
    squared = (prediction.float() - velocity_target(latents, noise)).square()
    return squared.flatten(1).double().mean(dim=1)


def validation_sums(prediction: Tensor, latents: Tensor, noise: Tensor) -> Tensor:
    """[sum of per-sample mean squared errors, number of samples], fp64 [2].

    Megatron's evaluate() sums such pairs over micro-batches and ranks and divides them.
    """
    per_sample = per_sample_losses(prediction, latents, noise)
    count = torch.tensor(float(per_sample.numel()), dtype=torch.float64, device=per_sample.device)
    return torch.stack((per_sample.sum(), count))
