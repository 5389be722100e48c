# SPDX-License-Identifier: Apache-2.0
"""A stand-in for the compiled `transformer_engine_torch`, so that TE's Python runs on a bare CPU.

No C++ of TransformerEngine runs under this stub, and no GPU. What runs, and what the tests judge,
is TE's own Python from the tree under test: Linear, LayerNormLinear, LayerNormMLP, base,
quantization, custom_recipes.gemm, _extra_state, the recipes. Every C++ function that is not written
out in `te_native.py` raises `NotImplementedError` with its name when it is called, so no test
passes because a call was swallowed; those that are written out are counted (`te_native.CALLS`).
"""

from __future__ import annotations

import enum
import importlib.metadata
import os
import sys
import types
import warnings
from typing import Any, NoReturn

from support import te_native

MODULE = "transformer_engine_torch"
#: Numbers that transformer_engine/pytorch/constants.py compares with its own copy at import.
_DTYPES = {
    "kByte": 0,
    "kInt32": 2,
    "kFloat32": 4,
    "kFloat16": 5,
    "kBFloat16": 6,
    "kFloat8E4M3": 7,
    "kFloat8E5M2": 8,
    "kFloat4E2M1": 10,
}
_FORWARD_SLOTS = [f"GEMM{i}_{slot}" for i in (1, 2, 3) for slot in ("INPUT", "WEIGHT", "OUTPUT")]
_BACKWARD_SLOTS = [f"GRAD_{slot}{i}" for i in (1, 2, 3) for slot in ("OUTPUT", "INPUT")]


class _Absent:
    """A C++ function that nobody wrote out: importing it is fine, calling it is not."""

    def __init__(self, name: str) -> None:
        self.__name__ = name

    def __call__(self, *_args: object, **_kwargs: object) -> NoReturn:
        raise NotImplementedError(f"{MODULE}.{self.__name__} was called, the stub has no such code")


class _Members(enum.EnumMeta):
    """Enum class whose members come into being when TE names them."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        member = int.__new__(cls, len(cls._member_map_))
        member._name_, member._value_ = name, len(cls._member_map_)
        cls._member_map_[name] = member
        return member


def _resolve(name: str) -> Any:
    """What the stub has under `name`: TE's classes start with a capital, its functions do not."""
    if name.startswith("__"):
        raise AttributeError(name)
    found = _Members(name, (enum.IntEnum,), enum.EnumType.__prepare__(name, (enum.IntEnum,)))
    return found if name[0].isupper() else _Absent(name)


def make() -> types.ModuleType:
    """A fresh stub module."""
    stub = types.ModuleType(MODULE, __doc__)
    stub.__file__ = __file__
    backends = {"NVTE_No_Backend": -1, "NVTE_F16_arbitrary_seqlen": 1, "NVTE_FP8": 2}
    if tuple(map(int, importlib.metadata.version("transformer_engine").split(".")[:2])) < (2, 15):
        backends["NVTE_F16_max512_seqlen"] = 0
    known: dict[str, Any] = {
        "DType": enum.IntEnum("DType", _DTYPES),
        "FP8FwdTensors": enum.IntEnum("FP8FwdTensors", _FORWARD_SLOTS, start=0),
        "FP8BwdTensors": enum.IntEnum("FP8BwdTensors", _BACKWARD_SLOTS, start=0),
        "NVTE_Fused_Attn_Backend": enum.IntEnum("NVTE_Fused_Attn_Backend", backends),
        "get_cudnn_version": lambda: 91200,
        **te_native.functions(),
    }

    def module_getattr(name: str) -> Any:
        found = _resolve(name)
        setattr(stub, name, found)
        return found

    for name, value in known.items():
        setattr(stub, name, value)
    stub.__dict__["__getattr__"] = module_getattr
    return stub


def installed() -> bool:
    """Whether `transformer_engine.pytorch` in this process runs on the stub."""
    loaded = sys.modules.get(MODULE)
    return loaded is not None and getattr(loaded, "__file__", None) == __file__


def install() -> types.ModuleType:
    """Put the stub in place and return `transformer_engine.pytorch` of the tree on the path.

    Raises RuntimeError where a compiled transformer_engine_torch is loaded already: then the real
    one should be tested, not this.
    """
    if not installed() and MODULE in sys.modules:
        raise RuntimeError(f"{MODULE} is loaded from {sys.modules[MODULE].__file__}: no stub")
    # transformer_engine.common loads the CUDA core library at import unless it thinks it is built.
    os.environ["NVTE_PROJECT_BUILDING"] = "1"
    os.environ.setdefault("NVTE_FUSED_ATTN", "0")
    # Its fused bias, dropout and GELU would start Inductor and a C++ compiler.
    os.environ.setdefault("NVTE_TORCH_COMPILE", "0")
    if not installed():
        sys.modules[MODULE] = make()
    with warnings.catch_warnings():
        # TE warns at import about what the stub replaces; tests run with warnings as errors.
        warnings.simplefilter("ignore")
        import transformer_engine.common

        transformer_engine.common.load_framework_extension = lambda _framework: None
        import transformer_engine.pytorch as te

        # MXFLUX_TE_ZERO_PATCH=1 on a stock tree: its tests are those of the patches.
        from mxflux.te import zero_patch

        if zero_patch.wanted():
            zero_patch.enable()
    return te
