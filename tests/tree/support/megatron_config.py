# SPDX-License-Identifier: Apache-2.0
"""A TransformerConfig through each of the doors that Megatron has for a setting."""

from __future__ import annotations

import dataclasses
import sys
from typing import TYPE_CHECKING, Any

import pytest
import torch
import yaml
from megatron.core.transformer.transformer_config import TransformerConfig

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Mapping
    from pathlib import Path

# What the releases that the patches are for do not all have.
TRAINING = pytest.mark.upstream(
    "megatron-lm>=0.17", reason="the sdist has no megatron/training before"
)
CONTAINERS = pytest.mark.upstream("megatron-lm>=0.18", reason="no config containers before")

TINY = {"num_layers": 2, "hidden_size": 16, "num_attention_heads": 2}
TRANSFORMER_CONFIG = "megatron.core.transformer.transformer_config.TransformerConfig"


def direct(**settings: Any) -> TransformerConfig:
    """The dataclass itself."""
    return TransformerConfig(**{**TINY, **settings})


def parse(patch: pytest.MonkeyPatch, *flags: str) -> Namespace:
    """What Megatron's own parser makes of a small training command line."""
    tiny = [f"--{name.replace('_', '-')}={value}" for name, value in TINY.items()]
    tiny += ["--seq-length=8", "--max-position-embeddings=8", "--micro-batch-size=1"]
    tiny += ["--train-iters=1", "--lr=1e-4", "--bf16", "--transformer-impl=local"]
    tiny += ["--tokenizer-type=NullTokenizer", "--vocab-size=16"]
    without_te = ("masked-softmax-fusion", "gradient-accumulation-fusion", "rope-fusion")
    tiny += [f"--no-{name}" for name in without_te]
    from megatron.training import arguments

    patch.setattr(sys, "argv", ["pretrain.py", *tiny, *flags])
    fsdp = "--use-torch-fsdp2" in flags  # refuses the value that all else needs
    patch.setenv("CUDA_DEVICE_MAX_CONNECTIONS", "8" if fsdp else "1")
    return arguments.parse_args()


def from_arguments(args: Namespace) -> TransformerConfig:
    """The config that training builds from the command line, which need not be validated."""
    from megatron.training import arguments

    args.params_dtype = torch.bfloat16
    return arguments.core_transformer_config_from_args(args)


def validate(args: Namespace) -> None:
    """Megatron's checks and conversions of parsed arguments."""
    from megatron.training import arguments

    arguments.validate_args(args)


def from_container(target: str, settings: Mapping[str, Any]) -> Any:
    """The instance of the class at ``target`` that a container file (YAML) makes."""
    from megatron.training.config.instantiate_utils import instantiate

    return instantiate({"_target_": target, **settings})


def from_yaml_cfg(
    folder: Path, settings: Mapping[str, Any], *, without: tuple[str, ...] = ()
) -> TransformerConfig:
    """The config of a --yaml-cfg file: every stock field, ``settings``, not those ``without``."""
    from megatron.training import yaml_arguments

    model = {
        field.name: field.default
        for field in dataclasses.fields(TransformerConfig)
        if isinstance(field.default, (bool, int, float, str, type(None)))
    }
    names = {"activation_func": "gelu", "init_method": "normal", "embedding_init_method": "normal"}
    plain = {"params_dtype": "bfloat16", "offload_modules": [], "attention_backend": "auto"}
    model |= {**TINY, **names, **plain, **settings}
    for name in without:
        model.pop(name, None)
    path = folder / "model.yaml"
    path.write_text(yaml.safe_dump({"language_model": model, "model_parallel": {}}), "utf-8")
    return yaml_arguments.core_transformer_config_from_yaml(yaml_arguments.load_yaml(path))
