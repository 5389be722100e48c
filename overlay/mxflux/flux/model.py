# SPDX-License-Identifier: Apache-2.0
"""FluxModel: from packed latents, text embeddings and a timestep to a velocity."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import torch
from megatron.core.process_groups_config import ProcessGroupCollection
from megatron.core.transformer.module import MegatronModule

from .attention_backend import set_attention_backend
from .embeddings import (
    MLPEmbedder,
    PlainLinear,
    TimestepEmbedding,
    sinusoidal_embedding,
)
from .fused import HEAD_GATES, BlockOps, fusion_gates
from .initialization import initialize
from .inputs import check_inputs
from .layer_specs import gates_of, get_flux_layer_spec
from .modulation import AdaLNContinuous
from .placement import parameter_device
from .precision import Context, get_fp8_context
from .rope import EmbedND, RotaryTable
from .transformer import FluxTransformerBlock

if TYPE_CHECKING:
    from megatron.core.transformer.transformer_block import TransformerBlockSubmodules
    from torch import Tensor

    from .config import FluxConfig

Layout = Literal["sbh", "bsh"]
TIME_FACTOR = 1000
"""Timesteps in [0,1] and guidance are scaled by this before their sinusoid."""


class FluxModel(MegatronModule):
    """Flux text-to-image transformer (BFL Flux.1) on Megatron-core.

    The state-dict names are those of ``FluxArchitecture.parameter_shapes``.
    """

    def __init__(
        self,
        config: FluxConfig,
        layer_spec: TransformerBlockSubmodules | None = None,
        pre_process: bool = True,
        post_process: bool = True,
        pg_collection: ProcessGroupCollection | None = None,
        vp_stage: int | None = None,
    ) -> None:
        if not (pre_process and post_process) or vp_stage is not None:
            raise ValueError(
                f"Flux runs without pipeline parallelism, got {pre_process=}, {post_process=}, "
                f"{vp_stage=}"
            )
        super().__init__(config=config)
        if config.transformer_impl != "local":
            set_attention_backend(config.attention_backend)
        self.pre_process = pre_process
        self.post_process = post_process
        self.share_embeddings_and_output_weights = False
        self.pg_collection = pg_collection or ProcessGroupCollection.use_mpu_process_groups()
        self.fusion_gates = gates_of(layer_spec) or fusion_gates(config)
        """Counts where each fused path engaged; ``require_engaged()`` after the first step."""
        self.pos_embed = EmbedND(config.theta, config.axes_dim, config.head_dim)
        self._build_embedders(config)
        self.transformer = FluxTransformerBlock(
            config=config,
            spec=layer_spec or get_flux_layer_spec(config, self.fusion_gates),
            post_layer_norm=False,
            pg_collection=self.pg_collection,
        )
        self._build_head(config)
        if config.perform_initialization:
            initialize(self)

    def _build_embedders(self, config: FluxConfig) -> None:
        hidden = config.hidden_size
        kw: dict[str, Any] = {"dtype": config.params_dtype, "device": parameter_device(config)}
        self.img_embed = PlainLinear(config.in_channels, hidden, **kw)
        self.txt_embed = PlainLinear(config.context_dim, hidden, **kw)
        self.timestep_embedding = TimestepEmbedding(config.model_channels, hidden, **kw)
        self.vector_embedding = MLPEmbedder(config.vec_in_dim, hidden, **kw)
        if config.guidance_embed:
            self.guidance_embedding = MLPEmbedder(config.model_channels, hidden, **kw)

    def _build_head(self, config: FluxConfig) -> None:
        kw: dict[str, Any] = {"dtype": config.params_dtype, "device": parameter_device(config)}
        hidden = config.hidden_size
        self.norm_out = AdaLNContinuous(hidden, **kw)
        self.head_ops = BlockOps(config, self.fusion_gates, "norm_out", HEAD_GATES)
        self.proj_out = PlainLinear(hidden, config.patch_size**2 * config.out_channels, **kw)

    def forward(
        self,
        img: Tensor,
        txt: Tensor,
        y: Tensor,
        timesteps: Tensor,
        img_ids: Tensor,
        txt_ids: Tensor,
        guidance: Tensor | None = None,
        *,
        layout: Layout = "sbh",
    ) -> Tensor:
        """Velocity of packed latents, in the layout of ``img``.

        Shapes with layout "sbh": img [S_img,B,in_channels], txt [S_txt,B,context_dim], result
        [S_img,B,patch_size^2*out_channels]; with "bsh" the first two axes of all three are
        swapped. y [B,vec_in_dim], timesteps [B] in [0,1], guidance [B]; img_ids, txt_ids
        [B,S,3] (or batch 1 for all), integers or fp32. Float inputs are cast to the parameter
        dtype. An ambient torch autocast has no effect.
        Raises ValueError naming the input and its shape when something does not fit.
        """
        check_inputs(
            self.config, layout, img=img, txt=txt, y=y, timesteps=timesteps,
            img_ids=img_ids, txt_ids=txt_ids, guidance=guidance,
        )  # fmt: skip
        if layout == "bsh":
            img, txt = img.transpose(0, 1), txt.transpose(0, 1)
        dtype = self.img_embed.weight.dtype
        with torch.autocast(img.device.type, enabled=False):
            conditioning = self._conditioning(y.to(dtype), timesteps.to(dtype), guidance)
            table = RotaryTable(self.pos_embed(torch.cat((txt_ids, img_ids), dim=1)))
            hidden = self.transformer(
                self.img_embed(img.to(dtype)), self.txt_embed(txt.to(dtype)), conditioning, table
            )
            image = hidden[txt.shape[0] :]
            scale, shift = self.norm_out(conditioning)
            out: Tensor = self.proj_out(self.head_ops.ln_modulate(image, shift, scale))
        return out.transpose(0, 1) if layout == "bsh" else out

    def _conditioning(self, y: Tensor, timesteps: Tensor, guidance: Tensor | None) -> Tensor:
        # The factor is applied in the parameter dtype, as diffusers and BFL do.
        vector: Tensor = self.timestep_embedding(timesteps * TIME_FACTOR)
        if guidance is not None:
            scaled = guidance.to(timesteps.dtype) * TIME_FACTOR
            vector = vector + self.guidance_embedding(
                sinusoidal_embedding(scaled, self.config.model_channels)
            )
        out: Tensor = vector + self.vector_embedding(y)
        return out

    def get_fp8_context(self) -> Context:
        """The quantization context that surrounds the transformer."""
        return get_fp8_context(self.config)

    def set_input_tensor(self, input_tensor: Tensor | list[Tensor | None] | None) -> None:
        """Accept Megatron's schedule hook; there is no earlier pipeline stage to hear from."""
        given = input_tensor if isinstance(input_tensor, list) else [input_tensor]
        if any(tensor is not None for tensor in given):
            raise ValueError("Flux runs without pipeline parallelism, got an input tensor")
