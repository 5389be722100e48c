# SPDX-License-Identifier: Apache-2.0
"""Rules of `optimizer`: a schedule that makes sense, and state that something keeps."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .finding import Finding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mxflux.recipe.schema import Recipe


def _rates(r: Recipe) -> Iterator[Finding]:
    o = r.optimizer
    if o.min_lr > o.lr:
        message = f"optimizer.min_lr={o.min_lr} is above optimizer.lr={o.lr}"
        yield Finding("optimizer.min_lr", message)
    elif o.lr_decay_style == "constant" and o.min_lr not in {0.0, o.lr}:
        message = f"optimizer.min_lr={o.min_lr} has no effect with lr_decay_style=constant"
        yield Finding("optimizer.min_lr", message, "set it to lr, or leave it out")
    if o.lr_warmup_init > o.lr:
        message = f"optimizer.lr_warmup_init={o.lr_warmup_init} is above optimizer.lr={o.lr}"
        yield Finding("optimizer.lr_warmup_init", message)


def _warmup(r: Recipe) -> Iterator[Finding]:
    o = r.optimizer
    named = "optimizer.lr_decay_iters" if o.lr_decay_iters else "schedule.train_iters"
    steps = o.lr_decay_iters or r.schedule.train_iters
    if o.lr_warmup_iters >= steps:
        message = f"optimizer.lr_warmup_iters={o.lr_warmup_iters} is not below {named}={steps}"
        yield Finding("optimizer.lr_warmup_iters", message, "set lr_decay_iters above the warmup")


def _precision_aware(r: Recipe) -> Iterator[Finding]:
    key = "optimizer.use_precision_aware_optimizer"
    if not r.optimizer.use_precision_aware_optimizer:
        return
    if r.device == "cpu":
        message = f"{key}=true with device=cpu"
        yield Finding(key, message, "the optimizer is TransformerEngine's and needs a GPU")
    if not r.parallel.use_distributed_optimizer:
        message = f"{key}=true with parallel.use_distributed_optimizer=false"
        yield Finding(key, message, "it needs the distributed optimizer")


RULES = (_rates, _warmup, _precision_aware)
