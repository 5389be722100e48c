# SPDX-License-Identifier: Apache-2.0
"""Real Megatron on two gloo ranks and mxflux's CPU device: layers, DDP, optimizers, checkpoints."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

SHAPE = {"num_layers": 2, "hidden_size": 32, "num_attention_heads": 4}
CPU = {"gradient_accumulation_fusion": False, "bias_dropout_fusion": False}
CPU |= {"masked_softmax_fusion": False, "persist_layer_norm": False}
CPU |= {"hidden_dropout": 0.0, "attention_dropout": 0.0}


def config(**settings: Any) -> Any:
    """A tiny transformer whose fusions need no GPU."""
    from megatron.core.transformer.transformer_config import TransformerConfig

    return TransformerConfig(**{**SHAPE, **CPU, **settings})


def block(**settings: Any) -> Any:
    """Two local-spec layers."""
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
    from megatron.core.transformer.transformer_block import TransformerBlock

    return TransformerBlock(config=config(**settings), spec=get_gpt_layer_local_spec())


def backward(net: Any, seed: int) -> None:
    """One forward and backward pass on this rank's data."""
    torch.manual_seed(seed + 1000 * torch.distributed.get_rank())
    hidden = torch.randn(8, 2, 32, requires_grad=True)
    mask = torch.ones(1, 1, 8, 8, dtype=torch.bool).triu(1)
    net(hidden, attention_mask=mask).pow(2).mean().backward()


def distributed(net: Any, *, distributed_optimizer: bool, **settings: Any) -> tuple[Any, Any]:
    """DDP around ``net``, and Megatron's optimizer for it."""
    from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig
    from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer

    sharded = {"use_distributed_optimizer": distributed_optimizer}
    ddp_config = DistributedDataParallelConfig(grad_reduce_in_fp32=True, **sharded, **settings)
    ddp = DistributedDataParallel(net.config, ddp_config, net)
    optimizer_config = OptimizerConfig(optimizer="adam", lr=1e-3, clip_grad=1.0, **sharded)
    return ddp, get_megatron_optimizer(optimizer_config, [ddp])


def trained(*, distributed_optimizer: bool, overlap: bool = False, **settings: Any) -> Any:
    """The parameters of a block, flat, after three optimizer steps of two microbatches."""
    torch.manual_seed(7)
    net = block()
    overlapping = {"overlap_grad_reduce": overlap, "bucket_size": 5000 if overlap else None}
    ddp, optimizer = distributed(
        net, distributed_optimizer=distributed_optimizer, **overlapping, **settings
    )
    for step in range(3):
        ddp.zero_grad_buffer()
        optimizer.zero_grad()
        with ddp.no_sync():
            backward(ddp, step)
        backward(ddp, step + 10)
        ddp.finish_grad_sync()
        successful, norm, _ = optimizer.step()
        if not successful or not norm > 0:
            raise RuntimeError(f"optimizer step {step}: {successful=}, {norm=}")
    return torch.cat([param.detach().flatten() for param in net.parameters()])


def model_checkpoint(folder: str) -> bool:
    """Whether a block's weights survive dist_checkpointing."""
    from megatron.core import dist_checkpointing

    torch.manual_seed(1)
    saved = block()
    dist_checkpointing.save(saved.sharded_state_dict(prefix=""), folder)
    torch.manual_seed(2)
    loaded = block()
    state = dist_checkpointing.load(loaded.sharded_state_dict(prefix=""), folder)
    loaded.load_state_dict(state)
    pairs = zip(saved.parameters(), loaded.parameters(), strict=True)
    return all(torch.equal(one, other) for one, other in pairs)


def fp4_without_te() -> None:
    """Build a block in FP4: by its by-name import it finds out that TE is missing."""
    block(fp4="e2m1")


def string_backend() -> None:
    """Build a language model whose attention_backend became a str after the config was built."""
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
    from megatron.core.models.gpt.gpt_model import GPTModel

    changed = config()
    changed.attention_backend = "fused"
    spec = get_gpt_layer_local_spec()
    GPTModel(changed, spec, vocab_size=16, max_sequence_length=8)


def outcome(piece: Callable[..., Any], *args: Any, **settings: Any) -> Any:
    """What ``piece`` returned, or its error as "Type: message"."""
    try:
        return piece(*args, **settings)
    except Exception as error:  # noqa: BLE001  the outcome under test
        return f"{type(error).__name__}: {error}"


def pieces(folder: str) -> dict[str, Any]:
    """Outcome per piece."""
    logging.disable(logging.CRITICAL)
    from megatron.core import parallel_state
    from megatron.core.tensor_parallel.random import model_parallel_cuda_manual_seed

    parallel_state.initialize_model_parallel()
    model_parallel_cuda_manual_seed(123)
    found: dict[str, Any] = {
        "checkpoint": outcome(model_checkpoint, folder),
        "fp4 without te": outcome(fp4_without_te),
        "string backend": outcome(string_backend),
    }
    ways: list[dict[str, bool]] = [
        {},
        {"overlap": True},
        {"overlap": True, "defer_grad_buffer_zero": True},
    ]
    for sharded in (False, True):
        runs = [outcome(trained, distributed_optimizer=sharded, **way) for way in ways]
        found[f"trained, sharded={sharded}"] = runs
    return found
