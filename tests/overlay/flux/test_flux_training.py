# SPDX-License-Identifier: Apache-2.0
"""Forward step, losses, samplers: order of the draws, rounding of sigma, evaluation apart."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

from mxflux.flux.patchify import pack_latents
from mxflux.flux.timestep_names import TIMESTEP_STRATEGIES
from mxflux.training.batch import LatentMode, move_batch
from mxflux.training.cfg_dropout import EmptyEncodings, drop_prompts, find_empty_encodings
from mxflux.training.flow_matching import add_noise, training_loss, validation_sums
from mxflux.training.forward_step import FluxForwardStep, StepSettings, reduce_loss
from mxflux.training.random_state import StepCounter, evaluation_seed, step_seed
from mxflux.training.sampling import sample_latents, sampling_sigmas
from mxflux.training.timestep_sampling import (
    evaluation_sigmas,
    sample_sigmas,
    sigma_table,
    sigmas_from_field,
)

if TYPE_CHECKING:
    from pathlib import Path

    from torch import Tensor

SCHNELL = LatentMode("resample", vae_scale=0.3611, vae_shift=0.1159)


@dataclass
class Config:
    """The fields of FluxConfig that the forward step reads."""

    tensor_model_parallel_size: int = 1
    bf16: bool = True
    fp16: bool = False
    cfg_dropout_prob: float = 0.0
    timestep_sampling_strategy: str = "direct_uniform"
    guidance_embed: bool = False
    guidance_scale: float = 3.5
    apply_rope_fusion: bool = False


class Model(torch.nn.Module):
    """Records its inputs; the velocity is a multiple of the tokens."""

    def forward(self, *inputs: Any) -> Tensor:
        self.inputs = inputs
        return 0.5 * inputs[0]


def batch(size: int = 6, mode: str = "resample", **extra: Tensor) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(1)

    def draw(*shape: int) -> Tensor:
        return torch.randn(size, *shape, generator=generator)

    latents = {"latents": draw(4, 4, 6)} if mode == "presampled" else {}
    if mode == "resample":
        latents = {"mean": draw(4, 4, 6), "logvar": draw(4, 4, 6)}
    return {**latents, "prompt_embeds": draw(5, 8), "pooled_prompt_embeds": draw(3), **extra}


def empty() -> EmptyEncodings:
    return EmptyEncodings(torch.full((1, 5, 8), 9.0), torch.full((1, 3), 7.0))


def step(settings: StepSettings | None = None, **fields: Any) -> FluxForwardStep:
    dropped = empty() if fields.get("cfg_dropout_prob", 0) else None
    counter = fields.pop("counter", None)
    chosen = settings or StepSettings(SCHNELL, seed=42)
    return FluxForwardStep(
        Config(**fields), chosen, device="cpu", counter=counter, empty_encodings=dropped
    )


# -- order and rounding ---------------------------------------------------------------------


def test_order_of_the_draws_and_every_formula() -> None:
    settings = StepSettings(SCHNELL, seed=42, data_parallel_rank=3, per_step_rng_reseed=True)
    forward = step(settings, cfg_dropout_prob=0.5, counter=StepCounter(training=17))
    model, data = Model(), batch()
    out = forward.run(data, model)
    torch.manual_seed(((42 + 300) * 10000 + 17) % 2**63)
    bf16 = {name: value.bfloat16() for name, value in data.items()}
    eps = torch.randn(6, 4, 4, 6, dtype=torch.bfloat16)
    noise = torch.randn(6, 4, 4, 6, dtype=torch.bfloat16)
    sigma = torch.rand(6).bfloat16()
    mask = torch.rand(6) < 0.5
    latents = 0.3611 * (bf16["mean"] + torch.exp(0.5 * bf16["logvar"]) * eps - 0.1159)
    assert torch.equal(out.latents, latents)
    assert torch.equal(out.noise, noise)
    level = sigma.float().view(6, 1, 1, 1)
    mixed = ((1 - level) * latents.float() + level * noise.float()).bfloat16()
    assert torch.equal(model.inputs[0], pack_latents(mixed).transpose(0, 1))
    assert torch.equal(model.inputs[3], sigma)
    assert model.inputs[3].dtype == torch.bfloat16
    assert mask.any()
    assert not mask.all()
    prompt = torch.where(mask[:, None, None], empty().t5.bfloat16(), bf16["prompt_embeds"])
    pooled = torch.where(mask[:, None], empty().clip.bfloat16(), bf16["pooled_prompt_embeds"])
    assert torch.equal(model.inputs[1], prompt.transpose(0, 1))
    assert torch.equal(model.inputs[2], pooled)
    assert torch.equal(out.prediction, 0.5 * mixed)
    assert not out.is_validation


def test_sigma_makes_no_round_trip_through_a_thousand() -> None:
    model = Model()
    step().run(batch(512), model)
    sigma = model.inputs[3]
    torch.manual_seed(42)
    torch.randn(2, 512, 4, 4, 6, dtype=torch.bfloat16)
    assert torch.equal(sigma, torch.rand(512).bfloat16())
    # The reference's 1000 * sigma / 1000 in bf16 would give other values.
    assert not torch.equal(sigma * 1000 / 1000, sigma)


def test_ids_and_metrics() -> None:
    model = Model()
    out = step().run(batch(2), model)
    img_ids, txt_ids, guidance = model.inputs[4:]
    assert img_ids.shape == (2, 6, 3)
    assert txt_ids.shape == (2, 5, 3)
    assert guidance is None
    sigma = model.inputs[3].float().mean()
    assert out.metrics.pop("avg_timestep") == sigma
    assert out.metrics == {
        "batch_size": 2,
        "image_height": 32,
        "image_width": 48,
        "latent_channels": 4,
        "text_seq_len": 5,
        "img_seq_len": 6,
    }


def test_fused_rotation_gets_ids_of_batch_one_and_guidance_is_filled() -> None:
    model = Model()
    step(apply_rope_fusion=True, guidance_embed=True, guidance_scale=2.5).run(batch(2), model)
    assert model.inputs[4].shape[0] == model.inputs[5].shape[0] == 1
    assert model.inputs[6].tolist() == [2.5, 2.5]
    assert model.inputs[6].dtype == torch.bfloat16


def test_scale_and_shift_act_only_in_resample_mode() -> None:
    forward = step(StepSettings(LatentMode("presampled"), seed=1))
    data = batch(mode="presampled")
    assert torch.equal(forward.run(data, Model()).latents, data["latents"].bfloat16())
    forward = step(StepSettings(LatentMode("resample", 1.0, 0.0), seed=1))
    assert not torch.equal(forward.run(batch(), Model()).latents, batch()["mean"].bfloat16())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("sampled",), "vae_latent_mode='sampled' is unknown"),
        (("resample",), "vae_scale=None: vae_latent_mode='resample' needs it"),
        (("resample", 0.3611), "vae_shift=None"),
        (("presampled", 0.3611), "vae_scale=0.3611: .* has no use for it"),
    ],
)
def test_latent_mode_and_its_numbers(arguments: tuple[Any, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        LatentMode(*arguments)


# -- counters and generators ----------------------------------------------------------------


def test_step_seed() -> None:
    assert step_seed(2025, 3, 7) == (2025 + 300) * 10000 + 7
    assert step_seed(2**62, 0, 5) == (2**62 * 10000 + 5) % 2**63
    assert evaluation_seed(2025, 3, 7) != step_seed(2025, 3, 7)


def test_evaluation_draws_other_noise_than_training_on_every_device() -> None:
    draws = [
        torch.randn(8, generator=torch.Generator().manual_seed(start(2025, 3, 7)))
        for start in (evaluation_seed, step_seed)
    ]
    assert not torch.equal(*draws)


def test_evaluation_advances_neither_the_counter_nor_any_generator() -> None:
    settings = StepSettings(SCHNELL, seed=42, per_step_rng_reseed=False)
    plain, mixed = step(settings), step(settings)
    model, evaluated = Model(), Model().eval()
    expected = [plain.run(batch(), model).noise for _ in range(3)]
    got = []
    for _ in range(3):
        got.append(mixed.run(batch(), model).noise)
        state = torch.get_rng_state()
        mixed.run(batch(), evaluated)
        assert torch.equal(state, torch.get_rng_state())
    assert plain.counter.training == mixed.counter.training == 3
    torch.testing.assert_close(got[0], expected[0], rtol=0, atol=0)


def test_training_continues_as_if_no_evaluation_had_happened() -> None:
    def noises(evaluate: bool) -> list[Tensor]:
        forward, out = step(), []
        for _ in range(3):
            out.append(forward.run(batch(), Model()).noise)
            if evaluate:
                forward.run(batch(), Model().eval())
        return out

    assert all(map(torch.equal, noises(True), noises(False)))


def test_evaluation_noise_depends_on_its_index_alone() -> None:
    forward, model, evaluated = step(), Model(), Model().eval()

    def evaluation() -> list[Tensor]:
        return [forward.run(batch(), evaluated).noise for _ in range(3)]

    first = evaluation()
    assert not torch.equal(first[0], first[1])
    forward.run(batch(), model)
    assert all(map(torch.equal, evaluation(), first))
    forward.counter.start_evaluation()
    assert all(map(torch.equal, evaluation(), first))
    other = step(StepSettings(SCHNELL, seed=42, data_parallel_rank=1))
    assert not torch.equal(other.run(batch(), evaluated).noise, first[0])


def test_resume_rebuilds_the_counter() -> None:
    settings = StepSettings(SCHNELL, seed=42, per_step_rng_reseed=True)
    whole, resumed = step(settings), step(settings, counter=StepCounter.resume(2, 2))
    noises = [whole.run(batch(), Model()).noise for _ in range(5)]
    assert torch.equal(resumed.run(batch(), Model()).noise, noises[4])


def test_ranks_draw_different_noise_without_reseed() -> None:
    draws = []
    for rank in (0, 1):
        torch.manual_seed(42)
        settings = StepSettings(SCHNELL, seed=42, data_parallel_rank=rank)
        draws.append(step(settings).run(batch(), Model()).noise)
    assert not torch.equal(*draws)


# -- validation -----------------------------------------------------------------------------


def test_validation_levels_come_from_the_field_or_are_equidistant() -> None:
    model = Model().eval()
    field = torch.tensor([7, 0, 3, 3, 1, 2])
    out = step(cfg_dropout_prob=1.0).run(batch(timestep=field), model)
    assert model.inputs[3].tolist() == [0.875, 0.0, 0.375, 0.375, 0.125, 0.25]
    assert out.is_validation
    assert torch.equal(model.inputs[2], batch()["pooled_prompt_embeds"].bfloat16())
    step().run(batch(10), model)
    assert model.inputs[3].tolist() == [k % 8 / 8 for k in range(10)]


def test_validation_can_insist_on_the_field() -> None:
    settings = StepSettings(SCHNELL, seed=1, eval_timestep_source="dataset")
    with pytest.raises(ValueError, match="the batch has no timestep"):
        step(settings).run(batch(), Model().eval())
    with pytest.raises(ValueError, match="eval_timestep_source='data' is unknown"):
        replace(settings, eval_timestep_source="data")


def test_timestep_in_training_or_out_of_range_is_refused() -> None:
    with pytest.raises(ValueError, match="a training batch has the field timestep"):
        step().run(batch(timestep=torch.arange(6)), Model())
    with pytest.raises(ValueError, match=r"must lie in 0..7, got \[8\]"):
        sigmas_from_field(torch.tensor([8]))
    with pytest.raises(ValueError, match="must be integers"):
        sigmas_from_field(torch.tensor([0.5]))


def test_losses() -> None:
    generator = torch.Generator().manual_seed(0)
    prediction, latents, noise = torch.randn(3, 2, 2, 4, 4, generator=generator).unbind()
    squared = (prediction - (noise - latents)) ** 2
    torch.testing.assert_close(training_loss(prediction, latents, noise), squared.mean())
    mask = torch.tensor([1.0, 0.0]).view(2, 1, 1, 1)
    torch.testing.assert_close(training_loss(prediction, latents, noise, mask), squared[0].mean())
    with pytest.raises(ValueError, match="selects no element"):
        training_loss(prediction, latents, noise, mask * 0)
    sums = validation_sums(prediction, latents, noise)
    assert sums.dtype == torch.float64
    torch.testing.assert_close(
        sums[0], squared.double().flatten(1).mean(1).sum(), rtol=1e-6, atol=0
    )
    assert sums[1] == 2


def test_reported_loss_survives_megatrons_in_place_division() -> None:
    x = torch.randn(3, 2, 2, 4, 4)
    for is_validation in (False, True):
        loss, report = reduce_loss(x[0], latents=x[1], noise=x[2], is_validation=is_validation)
        before = report["loss"].clone()
        loss /= 4
        assert torch.equal(report["loss"], before)
        assert report["loss"].numel() == 1 + is_validation


def test_megatrons_contract() -> None:
    forward = step()
    output, loss_function = forward(iter([batch()]), Model())
    loss, report = loss_function(output)
    assert loss.shape == ()
    assert report["loss"] == loss
    with pytest.raises(RuntimeError, match="no data iterator"):
        forward(None, Model())


# -- refusals -------------------------------------------------------------------------------


def test_what_the_step_cannot_do_is_refused() -> None:
    with pytest.raises(ValueError, match="tensor_model_parallel_size=2"):
        step(tensor_model_parallel_size=2)
    with pytest.raises(ValueError, match="empty encodings were not given"):
        FluxForwardStep(Config(cfg_dropout_prob=0.1), StepSettings(SCHNELL, 1), device="cpu")
    with pytest.raises(ValueError, match="empty encodings have no use"):
        FluxForwardStep(Config(), StepSettings(SCHNELL, 1), device="cpu", empty_encodings=empty())


def test_batches_that_do_not_fit_are_named() -> None:
    data = batch()
    del data["logvar"], data["prompt_embeds"]
    with pytest.raises(KeyError, match=r"lacks logvar, prompt_embeds .*it has mean, pooled"):
        step().run(data, Model())
    data = batch()
    data["prompt_embeds"] = data["prompt_embeds"][:3]
    with pytest.raises(ValueError, match=r"prompt_embeds has shape \(3, 5, 8\): .* batch 6"):
        move_batch(data, SCHNELL, torch.float32, torch.device("cpu"))


def test_dropout_of_another_length_is_refused() -> None:
    data = batch()
    data["prompt_embeds"] = torch.zeros(6, 4, 8)
    with pytest.raises(ValueError, match=r"empty T5 encoding has shape \(5, 8\), .* \(4, 8\)"):
        step(cfg_dropout_prob=0.1).run(data, Model())


def test_dropout_replaces_both_encodings_of_the_same_samples() -> None:
    prompt, pooled, mask = drop_prompts(torch.zeros(64, 5, 8), torch.zeros(64, 3), empty(), 0.5)
    assert 10 < mask.sum() < 54
    assert torch.equal((prompt == 9).all((1, 2)), mask)
    assert torch.equal((pooled == 7).all(1), mask)


def test_empty_encodings_are_found_or_every_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="neither empty_encodings_path nor data_path"):
        find_empty_encodings(None, None)
    data = tmp_path / "data"
    with pytest.raises(FileNotFoundError) as caught:
        find_empty_encodings(None, data)
    assert str(data / "empty_encodings") in str(caught.value)
    assert str(tmp_path / "empty_encodings") in str(caught.value)
    folder = tmp_path / "empty_encodings"
    folder.mkdir()
    np.save(folder / "t5_empty.npy", np.zeros((1, 5, 8), np.float32))
    with pytest.raises(FileNotFoundError, match=r"lacks clip_empty.npy"):
        find_empty_encodings(None, data)
    np.save(folder / "clip_empty.npy", np.ones((1, 3), np.float32))
    assert find_empty_encodings(None, data).clip.tolist() == [[1, 1, 1]]
    with pytest.raises(FileNotFoundError, match=str(tmp_path / "other")):
        find_empty_encodings(tmp_path / "other", data)


# -- timestep sampling ----------------------------------------------------------------------


def test_sigma_table() -> None:
    table = sigma_table()
    assert (len(table), table[0].item()) == (1000, 1.0)
    assert table[-1].item() == pytest.approx(0.001)
    assert (table.diff() < 0).all()
    assert sigma_table(3.0)[499].item() == pytest.approx(3 * 0.501 / (1 + 2 * 0.501), rel=1e-6)
    with pytest.raises(ValueError, match="scheduler_shift=0 must be positive"):
        sigma_table(0)


@pytest.mark.parametrize("strategy", TIMESTEP_STRATEGIES)
def test_strategies_follow_their_distribution(strategy: str) -> None:
    torch.manual_seed(0)
    sigma = sample_sigmas(strategy, 20_000, sigma_table(), "cpu")
    assert sigma.dtype == torch.float32
    assert 0 <= sigma.min() <= sigma.max() <= 1
    quartiles = torch.quantile(sigma, torch.tensor([0.25, 0.5, 0.75])).tolist()
    u = torch.linspace(0, 1, 100_001, dtype=torch.float64)
    curve = 1 - u - 1.29 * (torch.cos(torch.pi * u / 2) ** 2 - 1 + u)
    expected = {
        "uniform": [0.25, 0.5, 0.75],
        "direct_uniform": [0.25, 0.5, 0.75],
        "logit_normal": [0.3375, 0.5, 0.6625],
        "mode": torch.quantile(curve, torch.tensor([0.25, 0.5, 0.75]).double()).tolist(),
    }[strategy]
    assert quartiles == pytest.approx(expected, abs=0.02)


def test_strategy_errors() -> None:
    with pytest.raises(ValueError, match="timestep_sampling_strategy='cosine' is unknown"):
        sample_sigmas("cosine", 1, sigma_table(), "cpu")
    with pytest.raises(ValueError, match="needs scheduler_shift=1"):
        sample_sigmas("direct_uniform", 1, sigma_table(3.0), "cpu")


def test_evaluation_levels_are_exact_in_bf16() -> None:
    sigma = evaluation_sigmas(9, "cpu")
    assert torch.equal(sigma.bfloat16().float(), sigma)
    assert sigma[8] == 0


def test_mix_ends() -> None:
    x, noise = torch.randn(2, 3, 2, 4, 4).unbind()
    sigma = torch.tensor([0.0, 1.0, 0.5])
    mixed = add_noise(x, noise, sigma)
    assert torch.equal(mixed[0], x[0])
    assert torch.equal(mixed[1], noise[1])


# -- sampling -------------------------------------------------------------------------------


def test_sampling_schedule() -> None:
    assert sampling_sigmas(4, 256, dynamic_shift=False).tolist() == [1, 0.75, 0.5, 0.25, 0]
    shifted = sampling_sigmas(4, 4096, dynamic_shift=True)
    factor = np.exp(1.15)
    expected = [factor / (factor + 1 / s - 1) for s in (1, 0.75, 0.5, 0.25)] + [0]
    assert shifted.tolist() == pytest.approx(expected)
    with pytest.raises(ValueError, match="steps=0"):
        sampling_sigmas(0, 256, dynamic_shift=False)


def straight(target: Tensor, noise: Tensor) -> Any:
    """A model that knows the straight path: its velocity is noise - target everywhere."""

    def model(img: Tensor, *_: Any) -> Tensor:
        return pack_latents(noise - target).transpose(0, 1).to(img.dtype)

    return model


@pytest.mark.parametrize("steps", [1, 4])
def test_euler_recovers_the_target_of_a_straight_path(steps: int) -> None:
    target, noise = torch.randn(2, 2, 3, 4, 4).unbind()
    sigmas = sampling_sigmas(steps, 4, dynamic_shift=False)
    prompt, pooled = torch.zeros(2, 5, 8), torch.zeros(2, 3)
    out = sample_latents(straight(target, noise), noise, prompt, pooled, sigmas)
    torch.testing.assert_close(out, target)


def test_cfg_extrapolates_from_the_empty_prompt() -> None:
    noise = torch.zeros(2, 3, 4, 4)

    def model(img: Tensor, txt: Tensor, *_: Any) -> Tensor:
        return img * 0 + txt.mean()

    prompt, pooled = torch.ones(2, 5, 8), torch.zeros(2, 3)
    sigmas = sampling_sigmas(1, 4, dynamic_shift=False)
    out = sample_latents(model, noise, prompt, pooled, sigmas, cfg_scale=3.0, empty=empty())
    torch.testing.assert_close(out, torch.full_like(out, -(9 + 3 * (1 - 9))))
    with pytest.raises(ValueError, match=r"cfg_scale=2.0 needs"):
        sample_latents(model, noise, prompt, pooled, sigmas, cfg_scale=2.0)
