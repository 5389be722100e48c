# SPDX-License-Identifier: Apache-2.0
"""Memory of a rank from the recipe alone: closed forms, no model and no torch.

Parameters, gradients and optimizer state are exact up to Megatron's padding. Activations are what
autograd keeps from forward to backward, counted on the unfused local blocks (a test measures them)
less what fused and quantized paths do not keep. Not counted: the allocator's gaps, workspaces of
kernels and buffers of collectives.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from .megatron_arguments import sequence_length

if TYPE_CHECKING:
    from .schema import Recipe
    from .schema.optimizer import Optimizer

MX_BYTES = {"e2m1": 17 / 32, "e2m3": 25 / 32, "e3m2": 25 / 32}
"""Bytes of a packed element: its bits and its share of a scale for 32."""
STATE_BYTES = {"fp32": 4, "bf16": 2, "fp16": 2, "fp8": 1}
JOINT_WIDTHS, SINGLE_WIDTHS = 12, 10
"""Tensors as wide as the residual stream that a block keeps for each token: its input, its
normalized and modulated input, q and k rotated, v (single: all of QKV), the attention's output
and the update; a joint block also the residual, its norm, its modulation and the MLP's update."""


@dataclass(frozen=True)
class RankMemory:
    """Bytes of one rank, by what they hold."""

    parameters: int
    gradients: int
    optimizer: int
    packed_weights: int
    activations: int

    @property
    def total(self) -> int:
        """All of it."""
        return sum(getattr(self, field.name) for field in fields(self))


def rank_memory(recipe: Recipe, data_parallel_size: int) -> RankMemory:
    """Memory of each of ``data_parallel_size`` ranks."""
    if data_parallel_size < 1:
        raise ValueError(f"data_parallel_size={data_parallel_size} must be positive")
    parameters = recipe.architecture.num_parameters
    shards = data_parallel_size if recipe.parallel.use_distributed_optimizer else 1
    return RankMemory(
        parameters=parameters * element_bytes(recipe),
        gradients=parameters * gradient_bytes(recipe),
        optimizer=-(-parameters * optimizer_bytes(recipe) // shards),
        packed_weights=packed_weights(recipe),
        activations=activations(recipe),
    )


def element_bytes(recipe: Recipe) -> int:
    """Bytes of a parameter or an activation."""
    return 2 if recipe.precision.params_dtype == "bfloat16" else 4


def gradient_bytes(recipe: Recipe) -> int:
    """Bytes of an element of DDP's gradient buffer."""
    return 2 if recipe.precision.grad_reduce_in_bf16 else 4


def optimizer_bytes(recipe: Recipe) -> int:
    """Bytes of optimizer state for each parameter, the fp32 copy of a bf16 one included.

    The fused optimizer keeps only the 16 bits of an fp32 parameter that its bf16 copy lacks.
    """
    optimizer, is_bf16 = recipe.optimizer, recipe.precision.params_dtype == "bfloat16"
    if not optimizer.use_precision_aware_optimizer:
        return 12 if is_bf16 else 8
    return (2 if is_bf16 else 0) + _moments(optimizer)


def _moments(optimizer: Optimizer) -> int:
    return STATE_BYTES[optimizer.exp_avg_dtype] + STATE_BYTES[optimizer.exp_avg_sq_dtype]


def mx_element(recipe: Recipe) -> str | None:
    """Element format of packed operands, or None where linears are not MX."""
    precision = recipe.precision
    return precision.fp4 or precision.fp6


def packed_weights(recipe: Recipe) -> int:
    """Weights packed in forward and kept for dgrad, of all linears in the blocks."""
    element = mx_element(recipe)
    if element is None or not _backward_is_packed(recipe):
        return 0
    shapes = recipe.architecture.parameter_shapes()
    elements = sum(
        shape[0] * shape[1]
        for name, shape in shapes.items()
        if ".linear_" in name or ".added_linear_" in name
        if name.endswith(".weight")
    )
    return round(elements * MX_BYTES[element])


def activations(recipe: Recipe) -> int:
    """Bytes kept for backward by the micro-batch of a rank."""
    a, tokens = recipe.architecture, sequence_length(recipe) * recipe.schedule.micro_batch_size
    joint = tokens * _block_bytes(recipe, JOINT_WIDTHS, inputs=3)
    single = tokens * _block_bytes(recipe, SINGLE_WIDTHS, inputs=2)
    kept_joint, kept_single = a.num_joint_layers, a.num_single_layers
    rest = tokens * (5 * a.hidden_size * element_bytes(recipe) // 2 + 16 * a.head_dim)
    if recipe.model.recompute_granularity == "full":
        return _recomputed(recipe, tokens, joint, single) + rest
    return kept_joint * joint + kept_single * single + rest


def _recomputed(recipe: Recipe, tokens: int, joint: int, single: int) -> int:
    """Inputs of what is recomputed, the blocks that are not, and one group while it runs again."""
    a, model = recipe.architecture, recipe.model
    wide = tokens * a.hidden_size * element_bytes(recipe)
    group = model.recompute_num_layers or 1
    if model.recompute_method == "uniform":
        return -(-a.num_layers // group) * wide + group * max(joint, single)
    kept = max(0, a.num_layers - group)
    kept_single = min(kept, a.num_single_layers)
    blocks = kept_single * single + (kept - kept_single) * joint
    return min(group, a.num_layers) * wide + blocks + max(joint, single)


def _block_bytes(recipe: Recipe, widths: int, *, inputs: int) -> int:
    """Bytes of a block for each token. inputs: of its linears, other than the output's own."""
    a, e = recipe.architecture, element_bytes(recipe)
    total = widths * e * a.hidden_size + 2 * e * a.ffn_hidden_size + 12 * a.num_attention_heads
    is_joint = widths == JOINT_WIDTHS
    total += _norm_and_rotation(recipe, is_joint) * a.hidden_size
    if recipe.model.fused_ln_modulate == "on":
        total -= (2 if is_joint else 1) * e * a.hidden_size
    element = mx_element(recipe)
    if element is not None and _backward_is_packed(recipe):
        # A linear's input is kept packed; the attention's output and its packed form both are.
        packed = MX_BYTES[element]
        total += round((inputs - 1) * (packed - e) * a.hidden_size)
        total += round(packed * a.hidden_size + (packed - e) * a.ffn_hidden_size)
    return total + _scores(recipe)


def _norm_and_rotation(recipe: Recipe, is_joint: bool) -> int:
    """Bytes that RMSNorm and rotation of q and k keep, in widths of the residual stream.

    Unfused: q and k widened to fp32 and normalized. Fused, and TransformerEngine's: their input,
    which in a single block is there anyway, as v lies in it.
    """
    is_bf16 = recipe.precision.params_dtype == "bfloat16"
    model = recipe.model
    fused = "on" in {model.fused_qk_norm_rope, model.fused_qkv_prologue}
    if fused or model.transformer_impl == "transformer_engine":
        return 3 * element_bytes(recipe) if is_joint else 0
    if is_bf16:
        return 16
    return 8 + (12 if is_joint else 0)


def _scores(recipe: Recipe) -> int:
    """Attention weights for each token, where no kernel avoids them."""
    if recipe.model.attention_backend not in {"unfused", "local"}:
        return 0
    softmax = 6 if recipe.precision.params_dtype == "bfloat16" else 4
    heads = recipe.architecture.num_attention_heads
    return heads * (softmax * sequence_length(recipe) - 4)


def _backward_is_packed(recipe: Recipe) -> bool:
    return recipe.precision.mx_backward_precision not in {"fp8", "bf16"}
