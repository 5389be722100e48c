# SPDX-License-Identifier: Apache-2.0
"""What the tests of the fused MX chains run on a rank, under Triton's interpreter."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "overlay"))
import flux_ranks
import flux_tiny as tiny
import torch
import triton_interpreter  # noqa: F401  (before every kernel: it rounds to nearest)
from flux_gate_keys import CHAINS

from mxflux.flux.architecture import FLUX_TINY
from mxflux.flux.config import FluxConfig
from mxflux.flux.layer_specs import set_local_linear_provider
from mxflux.flux.model import FluxModel
from mxflux.flux.patchify import image_ids, text_ids
from mxflux.mx import census
from mxflux.mx.megatron_linear import local_linear_provider

if TYPE_CHECKING:
    from torch import Tensor

BATCH, TEXT, HEIGHT, WIDTH = 2, 8, 4, 12


def inputs() -> dict[str, Tensor]:
    """8 text and 12 image tokens of 2 samples, in bf16."""
    generator = torch.Generator().manual_seed(5)
    arch = FLUX_TINY

    def draw(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator).bfloat16()

    return {
        "img": draw(HEIGHT * WIDTH // 4, BATCH, arch.in_channels),
        "txt": draw(TEXT, BATCH, arch.context_dim),
        "y": draw(BATCH, arch.vec_in_dim),
        "timesteps": torch.tensor([0.125, 0.5]).bfloat16(),
        "img_ids": image_ids(BATCH, HEIGHT, WIDTH),
        "txt_ids": text_ids(BATCH, TEXT),
    }


def built(fields: dict[str, Any]) -> FluxModel:
    """The tiny preset with local MX linears and bf16 parameters."""
    fields = {"transformer_impl": "local", "params_dtype": torch.bfloat16, "bf16": True, **fields}
    if fields.get("fp4"):
        fields["fp4_recipe"] = "mxfp4"
    model = FluxModel(FluxConfig.from_architecture(FLUX_TINY, **fields))
    tiny.randomize(model)
    return model


def step(fields: dict[str, Any], stochastic: bool = True) -> dict[str, Any]:
    """Output, gradients, what engaged, and the census of a training step and an evaluation."""
    options = {} if stochastic else {"stochastic_gradients": False}
    set_local_linear_provider(local_linear_provider("emulated", **options))
    model = built(fields)
    with census(model) as trained:
        out = model(**inputs())
        out.float().square().mean().backward()
        if any(fields.get(name) for name in ("fp4", "fp6")):
            trained.check()
    engaged = {f"{r.key} {r.place}": r.engaged for r in model.fusion_gates.report()}
    model.fusion_gates.require_engaged()
    with torch.no_grad(), census(model) as evaluated:
        again = model(**inputs())
    return {
        "output": out.detach(),
        "evaluation": again,
        "grads": {name: p.grad for name, p in model.named_parameters()},
        "engaged": engaged,
        "gemms": dict(trained.gemms),
        "packs": dict(trained.quantizations),
        "evaluation_packs": dict(evaluated.quantizations),
    }


def steps(cases: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """:func:`step` for several configurations in one process."""
    flux_ranks.start()
    return [step(fields, stochastic="fp4" not in fields) for fields in cases]


def pre_hooks() -> list[str]:
    """Modules whose forward pre-hook ran although a fused path reads their parameters itself."""
    flux_ranks.start()
    set_local_linear_provider(local_linear_provider("emulated"))
    model = built({"fp6": "e2m3", **dict.fromkeys(CHAINS, "on")})
    seen: list[str] = []
    for name, module in model.named_modules():
        if any(True for _ in module.parameters(recurse=False)):
            module.register_forward_pre_hook(lambda *_, name=name: seen.append(name))
    with torch.no_grad():
        model(**inputs())
    owners = {name.rpartition(".")[0] for name, _ in model.named_parameters()}
    return sorted(owners - set(seen))


def gathered_late(fields: dict[str, Any]) -> tuple[Tensor, Tensor]:
    """Output of a model, and again while each module's parameters are NaN until its pre-hook."""
    flux_ranks.start()
    set_local_linear_provider(local_linear_provider("emulated"))
    model = built({"fp6": "e2m3", **fields})
    with torch.no_grad():
        expected = model(**inputs())
        for module in model.modules():
            own = list(module.parameters(recurse=False))
            values = [parameter.clone() for parameter in own]

            def gather(*_: Any, own: list[Tensor] = own, values: list[Tensor] = values) -> None:
                for parameter, value in zip(own, values, strict=True):
                    parameter.copy_(value)

            module.register_forward_pre_hook(gather)
            for parameter in own:
                parameter.fill_(float("nan"))
        return expected, model(**inputs())
