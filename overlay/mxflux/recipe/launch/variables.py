# SPDX-License-Identifier: Apache-2.0
"""The environment variables that the launcher owns: value, reason, and what is left alone.

docs/reference/environment.md is the same table for people; a test compares the two.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mxflux.recipe.schema import Recipe

#: Prefixes of which nothing but what is named below reaches a rank.
FAMILIES = ("NVTE_", "AITER_", "HIP_", "HSA_", "MXFLUX_", "TORCHELASTIC_")

#: Members of a family that say where something lies or which devices are allotted: facts of the
#: machine, which the launcher cannot know better.
LOCATIONS = frozenset(
    {
        "AITER_ASM_DIR",
        "AITER_JIT_DIR",
        "AITER_META_DIR",
        "HIP_CLANG_PATH",
        "HIP_DEVICE_LIB_PATH",
        "HIP_PATH",
        "HIP_PLATFORM",
        "HIP_VISIBLE_DEVICES",
        "HSA_PATH",
        "NVTE_CUDA_INCLUDE_DIR",
    }
)

#: Not owned, but a run depends on them: they are handed on and written down.
RECORDED = (
    "CUBLAS_",
    "CUDA_",
    "CUDNN_",
    "FI_",
    "GLOO_",
    "GPU_",
    "HIPBLASLT_",
    "LD_LIBRARY_PATH",
    "LD_PRELOAD",
    "MIOPEN_",
    "NCCL_",
    "PYTORCH_",
    "RCCL_",
    "ROCBLAS_",
    "ROCM_",
    "ROCR_VISIBLE_DEVICES",
    "TORCH_",
    "TORCHINDUCTOR_",
    "TRITON_",
    "UCX_",
)

_RENDEZVOUS = (
    "GROUP_RANK",
    "GROUP_WORLD_SIZE",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    "MASTER_ADDR",
    "MASTER_PORT",
    "RANK",
    "ROLE_RANK",
    "ROLE_WORLD_SIZE",
    "WORLD_SIZE",
)
_ATTENTION = ("flash", "fused", "unfused")


@dataclass(frozen=True)
class Variable:
    """One variable: its value (None: it must not be set) and why.

    ``numerics``: another value would train another model, so an inherited one is not replaced
    without being asked, it stops the launch.
    """

    name: str
    value: str | None
    reason: str
    numerics: bool = False


def of(recipe: Recipe) -> tuple[Variable, ...]:
    """Return the variables that ``recipe`` decides, each name once."""
    found: dict[str, Variable] = {}
    parts = (_process(), _devices(recipe), _mx(recipe), _attention(recipe), _rocm(recipe))
    for part in (*parts, _deterministic(recipe)):
        found.update({variable.name: variable for variable in part})
    return tuple(found.values())


def _process() -> Iterator[Variable]:
    """What every run needs, whatever the recipe says."""
    yield Variable("PYTHONPATH", None, "what `mxtree install` proved is what runs")
    yield Variable("PYTHONSAFEPATH", "1", "nor is it what lies in the working directory")
    yield Variable("PYTHONUNBUFFERED", "1", "the last lines of a killed rank are in its log")
    yield Variable("PYTHONFAULTHANDLER", "1", "a rank that crashes leaves its Python stack behind")
    yield Variable("OMP_NUM_THREADS", "1", "sums on the CPU do not depend on the cores at hand")
    yield Variable("TRITON_INTERPRET", None, "kernels would run in Triton's interpreter")
    for name in ("TORCHDYNAMO_DISABLE", "TORCH_COMPILE_DISABLE"):
        yield Variable(name, None, "compile.enable alone says whether torch.compile is used")
    for name in ("CUDA_LAUNCH_BLOCKING", "HIP_LAUNCH_BLOCKING", "AMD_SERIALIZE_KERNEL"):
        yield Variable(name, None, "it serialises the GPU; to look for a fault: launch.environment")
    yield Variable("FP4_RECIPE", None, "Megatron reads it beside precision.fp4_recipe")
    for name in _RENDEZVOUS:
        yield Variable(name, None, "torchrun sets it for each rank")


def _devices(recipe: Recipe) -> Iterator[Variable]:
    if recipe.device == "cpu":
        for name in ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"):
            yield Variable(name, "-1", "device: cpu leaves GPUs unused")
        return
    yield Variable(
        "CUDA_DEVICE_MAX_CONNECTIONS", "1", "Megatron orders communication by one hardware queue"
    )


def _mx(recipe: Recipe) -> Iterator[Variable]:
    """TransformerEngine's MX recipes read options from the environment: they must be ours."""
    precision = recipe.precision
    quantized = bool(precision.fp4 or precision.fp6)
    by_engine = quantized and recipe.model.transformer_impl == "transformer_engine"
    backend = precision.gemm_backend if by_engine else None
    yield Variable("MXFLUX_GEMM_BACKEND", backend, "precision.gemm_backend", numerics=True)
    rotate = str(int(precision.mx_hadamard)) if by_engine and precision.fp4 else None
    yield Variable("NVTE_MXFP4_USE_HADAMARD", rotate, "precision.mx_hadamard", numerics=True)
    yield Variable("NVTE_BACKWARD_OVERRIDE", None, "precision.mx_backward_precision", numerics=True)


def _attention(recipe: Recipe) -> Iterator[Variable]:
    """Return NVTE_*_ATTN: images preset some of them, and TransformerEngine obeys."""
    backend = recipe.model.attention_backend
    named = recipe.model.transformer_impl == "transformer_engine" and backend != "auto"
    for choice in _ATTENTION:
        value = str(int(choice == backend)) if named else None
        yield Variable(f"NVTE_{choice.upper()}_ATTN", value, f"model.attention_backend: {backend}")
    is_ck = named and backend == "fused" and recipe.device == "mi355x"
    yield Variable(
        "NVTE_FUSED_ATTN_CK", "1" if is_ck else None, "fused attention on MI355X is CK's"
    )


def _rocm(recipe: Recipe) -> Iterator[Variable]:
    """What the reference recipe for MI355X exports by hand, as far as this tree reads it."""
    yield Variable(
        "HSA_OVERRIDE_GFX_VERSION",
        None,
        "a GPU that passes for another architecture runs another one's kernels",
        numerics=True,
    )
    if recipe.device != "mi355x":
        return
    for name in ("USE_HIPBLASLT", "TORCH_BLAS_PREFER_HIPBLASLT", "NVTE_USE_HIPBLASLT"):
        yield Variable(name, "1", "GEMMs that stay in BF16 go to hipBLASLt")
    if recipe.model.transformer_impl == "transformer_engine":
        yield Variable(
            "NVTE_USE_CAST_TRANSPOSE_TRITON",
            "0",
            "ROCm's Triton cast ignores the Hadamard rotation",
        )


def _deterministic(recipe: Recipe) -> Iterator[Variable]:
    if not recipe.schedule.deterministic_mode or recipe.device == "cpu":
        return
    yield Variable("NVTE_ALLOW_NONDETERMINISTIC_ALGO", "0", "schedule.deterministic_mode")
    yield Variable("CUBLAS_WORKSPACE_CONFIG", ":4096:8", "schedule.deterministic_mode")
    yield Variable("NCCL_ALGO", "Ring", "schedule.deterministic_mode: Megatron wants one named")
