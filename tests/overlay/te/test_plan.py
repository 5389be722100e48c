# SPDX-License-Identifier: Apache-2.0
"""From a recipe's options to the packs and GEMMs of a linear; no TransformerEngine needed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from recipe_doubles import Format, Four, Recipe, Six

from mxflux.mx import MXValueError, QuantSpec
from mxflux.te import Options, Plan, check_options
from mxflux.te.options import PRECISIONS
from mxflux.te.plan import plan_of

ROLES = ("input", "weight", "grad_output")


def plan(recipe: Recipe) -> Plan:
    return plan_of(Options.of(recipe), recipe.backend or "emulated")


def specs(recipe: Recipe) -> dict[str, tuple[QuantSpec, QuantSpec]]:
    """Row and column spec by role."""
    made = plan(recipe)
    return {role: tuple(QuantSpec.parse(text) for text in made.packs(role)) for role in ROLES}


def test_each_pack_is_the_operand_of_one_gemm() -> None:
    made = plan(Four(stochastic_rounding=True, weight_block_2d=True, dgrad_precision="mxfp8"))
    assert made.packs("input") == (made.fprop.a, made.wgrad.b)
    assert made.packs("weight") == (made.fprop.b, made.dgrad.b)
    assert made.packs("grad_output") == (made.dgrad.a, made.wgrad.a)
    with pytest.raises(KeyError):
        made.packs("output")


@pytest.mark.parametrize(
    ("recipe", "expected"),
    [
        (Four(), ("e2m1", "e2m1", "e2m1")),
        (Six(), ("e2m3", "e2m3", "e2m3")),
        (Six(fp6_format="E3M2"), ("e3m2", "e3m2", "e3m2")),
        (Four(dgrad_precision="mxfp6"), ("e2m1", "e2m3", "e2m1")),
        (Four(wgrad_precision="bf16"), ("e2m1", "e2m1", "bf16")),
        (Six(dgrad_precision="mxfp8_e5m2", wgrad_precision="mxfp4"), ("e2m3", "e5m2", "e2m1")),
    ],
)
def test_formats_by_gemm(recipe: Recipe, expected: tuple[str, str, str]) -> None:
    made = plan(recipe)
    assert (made.fprop.format, made.dgrad.format, made.wgrad.format) == expected
    for gemm in (made.fprop, made.dgrad, made.wgrad):
        assert (gemm.backend == "") == (gemm.format == "bf16")


def test_rotation_is_on_both_operands_and_leaves_fp8_alone() -> None:
    made = plan(Four(use_hadamard=True, dgrad_precision="mxfp8", wgrad_precision="mxfp6"))
    points = [
        (QuantSpec.parse(g.a).hadamard, QuantSpec.parse(g.b).hadamard)
        for g in (made.fprop, made.dgrad, made.wgrad)
    ]
    assert points == [(16, 16), (0, 0), (32, 32)]


def test_stochastic_rounding_is_for_both_packs_of_the_gradient_only() -> None:
    found = specs(Four(stochastic_rounding=True))
    assert {role: tuple(s.stochastic for s in pair) for role, pair in found.items()} == {
        "input": (False, False),
        "weight": (False, False),
        "grad_output": (True, True),
    }


def test_square_blocks_are_for_both_packs_of_the_weight_only() -> None:
    found = specs(Four(weight_block_2d=True))
    assert {role: tuple(s.block_2d for s in pair) for role, pair in found.items()} == {
        "input": (False, False),
        "weight": (True, True),
        "grad_output": (False, False),
    }


def test_aiter_fp4_preshuffles_the_second_operand_of_every_gemm() -> None:
    """AMD's map: input no/yes, weight yes/yes, grad_output no/no (row/column)."""
    found = specs(Four(backend="aiter"))
    shuffled = {
        role: tuple(s.layout == "aiter_a4w4_b.v1" for s in pair) for role, pair in found.items()
    }
    assert shuffled == {
        "input": (False, True),
        "weight": (True, True),
        "grad_output": (False, False),
    }
    layouts = {s.layout for pair in found.values() for s in pair}
    assert layouts == {"aiter_a4w4_a.v1", "aiter_a4w4_b.v1"}


@pytest.mark.parametrize(
    ("recipe", "layout"),
    [
        (Six(backend="aiter"), "aiter_a6w6.v1"),
        (Six(backend="emulated"), "plain.v1"),
        (Four(backend="triton"), "plain.v1"),
        (Four(backend="hipblaslt"), "plain.v1"),
    ],
)
def test_layouts_of_the_other_backends(recipe: Recipe, layout: str) -> None:
    assert {s.layout for pair in specs(recipe).values() for s in pair} == {layout}


def test_equal_options_give_the_same_plan_object() -> None:
    assert plan(Four()) is plan(Four())
    assert plan(Four()) != plan(Four(scale_mode="floor"))
    assert Options.of(Four()) != Options.of(replace(Four(), backend="triton"))


@pytest.mark.parametrize("precision", [None, *PRECISIONS, "bf16"])
def test_every_precision_is_accepted_for_both_backward_gemms(precision: str | None) -> None:
    check_options(Four(dgrad_precision=precision))
    check_options(Six(wgrad_precision=precision))


@pytest.mark.parametrize(
    ("recipe", "named"),
    [
        (Four(margin=2), "Four: margin=2"),
        (Four(fp8_dpa=True), "fp8_dpa=True"),
        (Four(fp8_format=Format.HYBRID), "fp8_format=HYBRID"),
        (Four(fp4_format=Format.E4M3), "fp4_format='E4M3'; valid: 'E2M1'"),
        (Six(fp6_format="e2m3"), "fp6_format='e2m3'; valid: 'E2M3', 'E3M2'"),
        (Four(dgrad_precision="fp8"), "dgrad_precision='fp8'; valid: None, 'mxfp4'"),
        (Four(use_hadamard=1), "use_hadamard=1; valid: True, False"),
        (Four(backend="cublas"), "cublas"),
        (Four(scale_mode="nearest"), "nearest"),
        (Four(use_hadamard=True, weight_block_2d=True), "block_2d"),
        (Six(backend="aiter", fp6_format="E3M2", use_hadamard=True), None),
        (
            Four(backward_override="dequantized", wgrad_precision="bf16"),
            "wgrad_precision='bf16' has no effect with backward_override='dequantized'",
        ),
    ],
)
def test_an_option_without_a_meaning_is_named(recipe: Recipe, named: str | None) -> None:
    if named is None:
        check_options(recipe)
        return
    with pytest.raises(MXValueError, match=named):
        check_options(recipe)


def test_an_attribute_that_is_no_option_is_named() -> None:
    recipe: Any = Four()
    recipe.use_hadamad = True
    with pytest.raises(MXValueError, match=r"no option 'use_hadamad'.*use_hadamard"):
        check_options(recipe)
    recipe = Four()
    recipe._cached = "TE keeps such things on its recipes"
    check_options(recipe)


def test_the_text_of_a_plan_reads_back() -> None:
    for options in ({}, {"wgrad_precision": "bf16", "use_hadamard": True}):
        made = plan(Four(**options))
        assert type(made).parse(str(made)) == made
    for text in ("", "a,b,emulated|,,|,,", "|".join(["format=e2m1,,emulated"] * 3)):
        with pytest.raises(MXValueError, match="not a"):
            type(made).parse(text)
