# SPDX-License-Identifier: Apache-2.0
"""Which FP4 context real Megatron code enters, where only fp4_utils sees a Transformer Engine.

The stand-in records what is entered and computes nothing; every other module of Megatron imports
without Transformer Engine, so that its local layers run on the CPU.
"""

from __future__ import annotations

import builtins
import contextlib
import importlib
import importlib.util
import sys
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any

import torch
import torch.utils.checkpoint

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ENTERED: list[str] = []
# Where a TransformerBlock finds te_checkpoint: its own module, and from 0.18 on the other.
RECOMPUTES = ("megatron.core.transformer.transformer_block", "megatron.core.recompute")


@contextlib.contextmanager
def region(name: str) -> Iterator[None]:
    """A context that leaves its name in ENTERED."""
    ENTERED.append(name)
    yield


def fake_te() -> ModuleType:
    """What fp4_utils uses of Transformer Engine; a recipe is its own name."""
    te: Any = ModuleType("transformer_engine")
    te.__version__ = "2.18.0"
    te.__file__ = "/fake/transformer_engine/__init__.py"
    te.common = SimpleNamespace(
        recipe=SimpleNamespace(
            NVFP4BlockScaling=lambda fp8_dpa=False: f"nvfp4 fp8_dpa={fp8_dpa}",
            MXFP4BlockScaling=lambda: "mxfp4",
        )
    )
    te.pytorch = SimpleNamespace(
        fp8_autocast=lambda enabled, fp8_recipe, fp8_group: region(f"te {enabled} {fp8_recipe}"),
        fp8_model_init=lambda enabled, recipe: region(f"te init {enabled} {recipe}"),
    )
    return te


def import_fp4_utils(te: ModuleType) -> Any:
    """Import Megatron with ``te`` for fp4_utils and none for the rest; return fp4_utils."""
    # 0.16 asks for the version on import, with no TE an error; nothing else comes from utils.
    version = SimpleNamespace(is_te_min_version=lambda *_args, **_kwargs: True)
    seen_by_fp4_utils = {"transformer_engine": te, "megatron.core.utils": version}
    real_import = builtins.__import__

    def import_for(name: str, globals: Any = None, *rest: Any, **named: Any) -> Any:  # noqa: A002
        importer = (globals or {}).get("__name__")
        if importer == "megatron.core.fp4_utils" and name in seen_by_fp4_utils:
            return seen_by_fp4_utils[name]
        return real_import(name, globals, *rest, **named)

    builtins.__import__ = import_for
    try:
        from megatron.core import fp4_utils
        from megatron.core.models.gpt import gpt_layer_specs  # noqa: F401  all that blocks need
    finally:
        builtins.__import__ = real_import
    sys.modules["transformer_engine"] = te
    sys.modules["transformer_engine.common.recipe"] = te.common.recipe
    for name in RECOMPUTES:
        if importlib.util.find_spec(name) is not None:
            importlib.import_module(name).te_checkpoint = te_checkpoint
    return fp4_utils


def te_checkpoint(function: Any, _distribute: Any, _tracker: Any, _group: Any, *args: Any) -> Any:
    """Transformer Engine's activation checkpointing, as far as it calls the function twice."""
    return torch.utils.checkpoint.checkpoint(function, *args, use_reentrant=False)


def config(**settings: Any) -> Any:
    """An FP4 config whose layers run on the CPU."""
    from megatron.core.transformer.transformer_config import TransformerConfig

    cpu = {"use_cpu_initialization": True, "gradient_accumulation_fusion": False}
    cpu |= {"bias_dropout_fusion": False, "masked_softmax_fusion": False}
    cpu |= {"persist_layer_norm": False, "hidden_dropout": 0.0, "attention_dropout": 0.0}
    shape = {"num_layers": 2, "hidden_size": 16, "num_attention_heads": 2}
    return TransformerConfig(**{**cpu, **shape, "fp4": "e2m1", **settings})


def train_block(cfg: Any, *, backward: bool = False) -> None:
    """Build and run a TransformerBlock; it and recompute import get_fp4_context by name."""
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
    from megatron.core.transformer.transformer_block import TransformerBlock

    block = TransformerBlock(config=cfg, spec=get_gpt_layer_local_spec())
    hidden = torch.randn(4, 1, 16, requires_grad=True)
    out = block(hidden, attention_mask=torch.zeros(1, 1, 4, 4, dtype=torch.bool))
    if backward:
        out.sum().backward()


def entered(run: Callable[[], object]) -> str:
    """The contexts that ``run`` entered, joined, or its error as "Type: message"."""
    ENTERED.clear()
    try:
        run()
    except Exception as error:  # noqa: BLE001  the outcome under test
        return f"{type(error).__name__}: {error}"
    return ", ".join(ENTERED)


def provider(cfg: Any) -> contextlib.AbstractContextManager[None]:
    """Another autocast, as Primus-Turbo has one."""
    return region(f"provider {cfg.fp4_recipe}")


def outcomes() -> dict[str, str]:
    """Outcome per scenario."""
    te = fake_te()
    fp4_utils: Any = import_fp4_utils(te)
    from megatron.core import parallel_state
    from megatron.core.tensor_parallel.random import model_parallel_cuda_manual_seed

    parallel_state.initialize_model_parallel()
    model_parallel_cuda_manual_seed(1)
    from mxflux.megatron.fp4 import set_fp4_context_provider

    mxfp4 = {"fp4_recipe": "mxfp4"}
    found = {
        "nvfp4": entered(lambda: train_block(config())),
        "mxfp4": entered(lambda: train_block(config(**mxfp4))),
        "no fp4": entered(lambda: train_block(config(fp4=None))),
        "native flag": entered(
            lambda: train_block(config(**mxfp4, fp4_use_native_te_autocast=True))
        ),
    }
    found |= _outcomes_of_refusals(fp4_utils, te)
    found["registration"] = entered(lambda: set_fp4_context_provider(provider))
    found |= _outcomes_with_provider(fp4_utils)
    found["second registration"] = entered(
        lambda: set_fp4_context_provider(lambda _cfg: region(""))
    )
    found["same registration"] = entered(lambda: set_fp4_context_provider(provider))
    found["deregistration"] = entered(lambda: set_fp4_context_provider(None))
    found["afterwards"] = entered(lambda: train_block(config()))
    return found


def _outcomes_of_refusals(fp4_utils: Any, te: Any) -> dict[str, str]:
    mxfp4 = config(fp4_recipe="mxfp4")
    late = config()
    late.fp4_recipe = "bogus"
    attention = config(fp4_recipe="mxfp4")
    attention.fp8_dot_product_attention = True
    found = {
        "unknown recipe": entered(lambda: fp4_utils.get_fp4_context(late)),
        "fp8 attention": entered(lambda: fp4_utils.get_fp4_context(attention)),
    }
    complete = te.common.recipe.__dict__.copy()
    del te.common.recipe.MXFP4BlockScaling
    found["te without mxfp4"] = entered(lambda: fp4_utils.get_fp4_context(mxfp4))
    te.common.recipe.__dict__.update(complete)
    modern = fp4_utils.is_te_min_version
    fp4_utils.is_te_min_version = lambda *_args, **_kwargs: False
    found["old te"] = entered(lambda: fp4_utils.get_fp4_context(config()))
    fp4_utils.is_te_min_version = modern
    return found


def _outcomes_with_provider(fp4_utils: Any) -> dict[str, str]:
    native = {"fp4_recipe": "mxfp4", "fp4_use_native_te_autocast": True}
    recompute = {"recompute_granularity": "full", "recompute_method": "uniform"}
    ends = {"first_last_layers_bf16": True, "num_layers_at_start_in_bf16": 1}
    ends["num_layers_at_end_in_bf16"] = 0

    def graphs() -> None:
        cfg = config()
        cfg.cuda_graph_impl = "transformer_engine"
        fp4_utils.get_fp4_context(cfg)

    def init() -> None:
        with fp4_utils.get_fp4_context(config(fp4_param=True), is_init=True):
            pass

    return {
        "provider": entered(lambda: train_block(config(fp4_recipe="mxfp4"))),
        "provider, native flag": entered(lambda: train_block(config(**native))),
        "provider, recompute": entered(
            lambda: train_block(config(**recompute, recompute_num_layers=1), backward=True)
        ),
        "provider, bf16 first layer": entered(lambda: train_block(config(**ends))),
        "provider, no fp4": entered(lambda: train_block(config(fp4=None))),
        "provider, init": entered(init),
        "provider, graphs": entered(graphs),
    }
