# SPDX-License-Identifier: Apache-2.0
"""What training makes of a command line when it wraps a model in DDP."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import pytest
import torch

if TYPE_CHECKING:
    from collections.abc import Sequence


def provide(config: Any, **_position: Any) -> Any:
    """A model of one weight, wherever in the pipeline."""
    from megatron.core.transformer.module import MegatronModule

    model = MegatronModule(config)
    model.weight = torch.nn.Parameter(torch.ones(4, 4))
    return model


def deferral(flags: Sequence[str]) -> Any:
    """defer_grad_buffer_zero of the DDP that training builds, or the error as "Type: message"."""
    from megatron.training import arguments, global_vars, training

    from support import megatron_config

    try:
        with pytest.MonkeyPatch.context() as patch:
            args = megatron_config.parse(patch, *flags)
            arguments.validate_args(args)
            config = megatron_config.from_arguments(args)
            patch.setattr(global_vars, "_GLOBAL_ARGS", args)
            (model,) = training.get_model(provide, config=config)
            return model.ddp_config.defer_grad_buffer_zero
    except (SystemExit, Exception) as error:  # noqa: BLE001  the outcome under test
        return f"{type(error).__name__}: {error}"


def outcomes(command_lines: Sequence[Sequence[str]]) -> list[Any]:
    """The outcome of each command line."""
    logging.disable(logging.CRITICAL)
    from megatron.core import parallel_state

    parallel_state.initialize_model_parallel()
    return [deferral(flags) for flags in command_lines]
