# SPDX-License-Identifier: Apache-2.0
"""One micro-step of Flux: from a pre-encoded batch to the predicted velocity and its loss.

Order of the random draws, which a run must keep to be comparable: [per-step start value] ->
VAE resample eps -> noise -> timesteps -> CFG dropout mask.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from mxflux.flux.patchify import image_ids, pack_latents, text_ids, unpack_latents

from .batch import LatentMode, draw_like, move_batch
from .cfg_dropout import EmptyEncodings, drop_prompts
from .flow_matching import add_noise, training_loss, validation_sums
from .random_state import StepCounter, default_generator, evaluation_seed, rank_seed, step_seed
from .timestep_sampling import evaluation_sigmas, sample_sigmas, sigma_table, sigmas_from_field

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from torch import Tensor

    from mxflux.flux.config import FluxConfig

VAE_FACTOR = 8
EVAL_TIMESTEP_SOURCES = ("equidistant", "dataset")


@dataclass(frozen=True)
class StepSettings:
    """What a run decides about its forward step, beside the model's config."""

    latent_mode: LatentMode
    seed: int
    data_parallel_rank: int = 0
    per_step_rng_reseed: bool = False
    scheduler_shift: float = 1.0
    eval_timestep_source: str = "equidistant"
    """A ``timestep`` in the batch always wins; "dataset" insists on it."""

    def __post_init__(self) -> None:
        if self.eval_timestep_source not in EVAL_TIMESTEP_SOURCES:
            raise ValueError(
                f"eval_timestep_source={self.eval_timestep_source!r} is unknown. "
                f"Choose from: {', '.join(EVAL_TIMESTEP_SOURCES)}."
            )


@dataclass(frozen=True)
class Prepared:
    """Everything drawn for a micro-step, before the model runs."""

    latents: Tensor
    noise: Tensor
    sigma: Tensor
    """[B] in the compute dtype: the one value that both the mix and the model see."""
    noisy: Tensor
    prompt: Tensor
    pooled: Tensor


@dataclass(frozen=True)
class StepOutput:
    """What a micro-step predicted, and what it needs for its loss."""

    prediction: Tensor
    latents: Tensor
    noise: Tensor
    is_validation: bool
    metrics: dict[str, Any] = field(default_factory=dict)


class FluxForwardStep:
    """Megatron's ``forward_step_func`` for Flux.

    Raises ValueError when the config asks for what the step cannot do: tensor parallelism, or
    CFG dropout without the empty encodings.
    """

    def __init__(
        self,
        config: FluxConfig,
        settings: StepSettings,
        *,
        device: torch.device | str,
        counter: StepCounter | None = None,
        empty_encodings: EmptyEncodings | None = None,
    ) -> None:
        if config.tensor_model_parallel_size != 1:
            raise ValueError(
                f"tensor_model_parallel_size={config.tensor_model_parallel_size}: the forward "
                "step draws its noise on each rank and needs 1"
            )
        if (config.cfg_dropout_prob > 0) != (empty_encodings is not None):
            given = "were not given" if empty_encodings is None else "have no use"
            raise ValueError(f"cfg_dropout_prob={config.cfg_dropout_prob}: empty encodings {given}")
        self.config = config
        self.settings = settings
        self.device = torch.device(device)
        self.dtype = _compute_dtype(config)
        self.counter = counter or StepCounter()
        self.table = sigma_table(settings.scheduler_shift)
        self.empty = (
            None if empty_encodings is None else empty_encodings.to(self.device, self.dtype)
        )
        self.started = False
        """Whether this rank's generators have their own start value already."""
        self.tokens = (0, 0)
        """(text, image) tokens of a sample in the newest micro-step."""

    def __call__(
        self, data_iterator: Iterator[Mapping[str, Any]] | None, model: torch.nn.Module
    ) -> tuple[Tensor, Callable[[Tensor], tuple[Tensor, dict[str, Tensor]]]]:
        """Megatron's contract: the output tensor and the function that turns it into a loss."""
        if data_iterator is None:
            raise RuntimeError("this rank has no data iterator: every Flux rank reads its own data")
        step = self.run(next(data_iterator), model)
        return step.prediction, partial(
            reduce_loss, latents=step.latents, noise=step.noise, is_validation=step.is_validation
        )

    def run(self, batch: Mapping[str, Any], model: torch.nn.Module) -> StepOutput:
        """Prepare a batch, run the model, unpack its velocity to [B,C,H,W]."""
        training = model.training
        prepared = self.prepare(batch, training=training)
        batch_size, _, height, width = prepared.latents.shape
        text_length = prepared.prompt.shape[1]
        self.tokens = (text_length, height // 2 * (width // 2))
        ids_batch = 1 if self.config.apply_rope_fusion else batch_size
        velocity = model(
            _sequence_first(pack_latents(prepared.noisy)),
            _sequence_first(prepared.prompt),
            prepared.pooled,
            prepared.sigma,
            image_ids(ids_batch, height, width, device=self.device),
            text_ids(ids_batch, text_length, device=self.device),
            self._guidance(batch_size),
        )
        prediction = unpack_latents(velocity.transpose(0, 1), height, width)
        return StepOutput(
            prediction, prepared.latents, prepared.noise, not training, _metrics(prepared)
        )

    @torch.no_grad()
    def prepare(self, batch: Mapping[str, Any], *, training: bool) -> Prepared:
        """Draw latents, noise, sigma and dropout in the order of the module's docstring.

        Evaluation draws from a generator of its own and advances no other; its noise depends on
        the index of the micro-step within the evaluation. Never compile this: a compiled randn
        differs from the eager one.
        """
        generator = self._generator(training)
        moved = move_batch(batch, self.settings.latent_mode, self.dtype, self.device)
        latents = self.settings.latent_mode.latents(moved, generator)
        noise = draw_like(latents, generator)
        # One rounding: a round trip through 1000 * sigma would change 2.5 % of bf16 values.
        sigma = self._sigma(moved, training).to(self.dtype)
        prompt, pooled = moved["prompt_embeds"], moved["pooled_prompt_embeds"]
        if training and self.empty is not None:
            prompt, pooled, _ = drop_prompts(
                prompt, pooled, self.empty, self.config.cfg_dropout_prob
            )
        return Prepared(latents, noise, sigma, add_noise(latents, noise, sigma), prompt, pooled)

    def _generator(self, training: bool) -> torch.Generator:
        s = self.settings
        if not training:
            index = self.counter.next_evaluation()
            own = torch.Generator(device=self.device)
            return own.manual_seed(evaluation_seed(s.seed, s.data_parallel_rank, index))
        if not self.started:
            # Ranks start Megatron with one value; without this they would draw equal noise.
            self.started = True
            for device in dict.fromkeys((torch.device("cpu"), self.device)):
                default_generator(device).manual_seed(rank_seed(s.seed, s.data_parallel_rank))
        step = self.counter.next_training()
        generator = default_generator(self.device)
        if s.per_step_rng_reseed:
            generator.manual_seed(step_seed(s.seed, s.data_parallel_rank, step))
        return generator

    def _sigma(self, moved: Mapping[str, Tensor], training: bool) -> Tensor:
        size = moved["prompt_embeds"].shape[0]
        if training:
            if "timestep" in moved:
                raise ValueError("a training batch has the field timestep: is it validation data?")
            strategy = self.config.timestep_sampling_strategy
            return sample_sigmas(strategy, size, self.table, self.device)
        if "timestep" in moved:
            return sigmas_from_field(moved["timestep"])
        if self.settings.eval_timestep_source == "dataset":
            raise ValueError("eval_timestep_source='dataset', but the batch has no timestep")
        return evaluation_sigmas(size, self.device)

    def _guidance(self, batch: int) -> Tensor | None:
        if not self.config.guidance_embed:
            return None
        return torch.full(
            (batch,), self.config.guidance_scale, dtype=self.dtype, device=self.device
        )


def reduce_loss(
    prediction: Tensor, *, latents: Tensor, noise: Tensor, is_validation: bool
) -> tuple[Tensor, dict[str, Tensor]]:
    """Loss and what is reported: the mean in training, [sum, count] over samples in validation."""
    if is_validation:
        sums = validation_sums(prediction, latents, noise)
        return sums[0].clone(), {"loss": sums}
    loss = training_loss(prediction, latents, noise)
    # Megatron divides the loss in place.
    return loss, {"loss": loss.detach().clone()}


def _compute_dtype(config: FluxConfig) -> torch.dtype:
    if config.bf16:
        return torch.bfloat16
    return torch.float16 if config.fp16 else torch.float32


def _sequence_first(x: Tensor) -> Tensor:
    return x.transpose(0, 1).contiguous()


def _metrics(prepared: Prepared) -> dict[str, Any]:
    batch, channels, height, width = prepared.latents.shape
    return {
        "batch_size": batch,
        "image_height": height * VAE_FACTOR,
        "image_width": width * VAE_FACTOR,
        "latent_channels": channels,
        "avg_timestep": prepared.sigma.float().mean(),
        "text_seq_len": prepared.prompt.shape[1],
        "img_seq_len": height // 2 * (width // 2),
    }
