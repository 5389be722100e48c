# SPDX-License-Identifier: Apache-2.0
"""Section `optimizer`: AdamW and its learning rate."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from .base import NotNegative, Positive, PositiveNumber, Section

Beta = Annotated[float, Field(ge=0, lt=1)]
Rate = Annotated[float, Field(ge=0)]
StateType = Literal["fp32", "bf16", "fp16", "fp8"]


class Optimizer(Section):
    """How parameters change."""

    optimizer: Literal["adam"] = "adam"
    """Adam with decoupled weight decay."""
    lr: PositiveNumber
    """Largest learning rate."""
    min_lr: Rate = 0.0
    """Smallest learning rate after the warmup."""
    weight_decay: Rate = 0.1
    """Decoupled weight decay."""
    adam_beta1: Beta = 0.9
    """Decay of the mean of gradients."""
    adam_beta2: Beta = 0.95
    """Decay of the mean of squared gradients."""
    adam_eps: PositiveNumber = 1e-8
    """Added to the denominator."""
    clip_grad: Rate = 1.0
    """Largest norm of the gradient; 0 does not clip."""
    lr_warmup_iters: NotNegative = 0
    """Steps in which the learning rate rises linearly."""
    lr_warmup_init: Rate = 0.0
    """Learning rate at the start of the warmup."""
    lr_decay_iters: Positive | None = None
    """Steps after which the learning rate is at min_lr; null: train_iters."""
    lr_decay_style: Literal["constant", "linear", "cosine", "inverse-square-root"] = "constant"
    """How the learning rate falls after the warmup."""
    nemo_aligned_lr_warmup: bool = False
    """Count the step that is being made as done: the first one has a learning rate above 0."""
    use_precision_aware_optimizer: bool = False
    """Keep optimizer state in the dtypes below (TransformerEngine's fused Adam)."""
    main_params_dtype: Literal["fp32", "fp16"] = "fp32"
    """Dtype of the optimizer's parameters."""
    main_grads_dtype: Literal["fp32", "bf16"] = "fp32"
    """Dtype of the optimizer's gradients."""
    exp_avg_dtype: StateType = "fp32"
    """Dtype of the mean of gradients."""
    exp_avg_sq_dtype: StateType = "fp32"
    """Dtype of the mean of squared gradients."""
