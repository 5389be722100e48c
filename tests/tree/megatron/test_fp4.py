# SPDX-License-Identifier: Apache-2.0
"""FP4: asked for, it runs in the context asked for, or there is an error; never BF16 in silence."""

from __future__ import annotations

import ast
import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import megatron.core
import pytest
from megatron.core import fp4_utils
from megatron.core.enums import Fp4Recipe
from support import megatron_config, ranks
from support.megatron_config import CONTAINERS, TRAINING

if TYPE_CHECKING:
    from collections.abc import Callable

MXFP4 = {"fp4": "e2m1", "fp4_recipe": "mxfp4"}
NATIVE = {**MXFP4, "fp4_use_native_te_autocast": True}


# What the config accepts.


@pytest.mark.control("DID NOT RAISE")
@pytest.mark.parametrize("recipe", [None, "", "mxfp6", "NVFP4"])
def test_fp4_needs_a_known_recipe(recipe: str | None) -> None:
    """An absent recipe would otherwise surface in the first forward, or never."""
    names = [known.value for known in Fp4Recipe]
    with pytest.raises(ValueError, match="fp4='e2m1' needs an fp4_recipe out of") as error:
        megatron_config.direct(fp4="e2m1", fp4_recipe=recipe)
    assert str(error.value).endswith(f"{names}, got {recipe!r}.")


@pytest.mark.control("DID NOT RAISE")
def test_recipe_name_as_format() -> None:
    """fp4='custom' (or 'mxfp4') alone would run the default recipe, NVFP4."""
    with pytest.raises(ValueError, match="fp4='custom' names a recipe, but fp4_recipe='nvfp4'"):
        megatron_config.direct(fp4="custom")
    assert megatron_config.direct(fp4="nvfp4").fp4_recipe == "nvfp4"


@pytest.mark.control("DID NOT RAISE")
def test_mxfp4_parameters_are_refused() -> None:
    """MXFP4 weights cannot be parameters: their storage is no tensor."""
    with pytest.raises(ValueError, match="fp4_param is not supported with fp4_recipe='mxfp4'"):
        megatron_config.direct(**MXFP4, fp4_param=True)


@pytest.mark.control("unexpected keyword argument 'fp4_use_native_te_autocast'")
def test_flag_without_fp4_is_refused() -> None:
    """It would ask for an autocast of nothing."""
    with pytest.raises(ValueError, match="must be used together with fp4 mode"):
        megatron_config.direct(fp4_use_native_te_autocast=True)


@pytest.mark.control("'TransformerConfig' object has no attribute 'fp4_use_native_te_autocast'")
def test_flag_is_off_by_default() -> None:
    """Nobody gets native autocast unasked."""
    assert megatron_config.direct(**MXFP4).fp4_use_native_te_autocast is False


# Every door.


def through_dataclass(_folder: Path, _patch: pytest.MonkeyPatch) -> Any:
    """The config in Python."""
    return megatron_config.direct(**NATIVE)


def through_container(_folder: Path, _patch: pytest.MonkeyPatch) -> Any:
    """A container file; upstream drops the keys it does not know, with a log line."""
    settings = {**megatron_config.TINY, **NATIVE}
    return megatron_config.from_container(megatron_config.TRANSFORMER_CONFIG, settings)


def through_yaml_cfg(folder: Path, _patch: pytest.MonkeyPatch) -> Any:
    """A --yaml-cfg file; upstream ignores the keys it does not know."""
    return megatron_config.from_yaml_cfg(folder, NATIVE)


def through_command_line(_folder: Path, patch: pytest.MonkeyPatch) -> Any:
    """The flags that Megatron generates from the fields."""
    flags = ["--fp4-format=e2m1", "--fp4-recipe=mxfp4", "--fp4-use-native-te-autocast"]
    return megatron_config.from_arguments(megatron_config.parse(patch, *flags))


@pytest.mark.control("unexpected keyword argument 'fp4_use|has no attribute 'fp4_use|SystemExit: 2")
@pytest.mark.parametrize(
    "through",
    [
        through_dataclass,
        pytest.param(through_container, marks=CONTAINERS),
        pytest.param(through_yaml_cfg, marks=TRAINING),
        pytest.param(through_command_line, marks=TRAINING),
    ],
)
def test_flag_arrives(
    through: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Flag and recipe arrive in the config."""
    config = through(tmp_path, monkeypatch)
    assert config.fp4 == "e2m1"
    assert config.fp4_recipe == "mxfp4"
    assert config.fp4_use_native_te_autocast is True


@TRAINING
@pytest.mark.control("SystemExit: 2")
def test_recipe_on_the_command_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """The choices of --fp4-recipe include mxfp4."""
    args = megatron_config.parse(monkeypatch, "--fp4-format=e2m1", "--fp4-recipe=mxfp4")
    assert megatron_config.from_arguments(args).fp4_recipe == "mxfp4"


@TRAINING
def test_yaml_cfg_written_for_stock_loads(tmp_path: Path) -> None:
    """A file without the new field means its default."""
    new = ("fp4_use_native_te_autocast",)
    config = megatron_config.from_yaml_cfg(tmp_path, {}, without=new)
    assert not getattr(config, new[0], False)


# Without Transformer Engine.


@pytest.mark.control("DID NOT RAISE")
@pytest.mark.parametrize("ask", [fp4_utils.get_fp4_context, fp4_utils.get_fp4_recipe])
def test_no_te(ask: Callable[[Any], Any]) -> None:
    """FP4 without Transformer Engine is an error and not a nullcontext."""
    assert not fp4_utils.HAVE_TE
    with pytest.raises(RuntimeError, match=r"needs Transformer Engine, .* silently be BF16"):
        ask(megatron_config.direct(fp4="e2m1"))


def test_no_te_and_no_fp4() -> None:
    """Who asks for nothing gets nothing, and neither does a layer that is exempt from FP4."""
    config = megatron_config.direct()
    assert fp4_utils.get_fp4_recipe(config) is None
    with fp4_utils.get_fp4_context(config) as context:
        assert context is None
    exempt = megatron_config.direct(fp4="e2m1", first_last_layers_bf16=True)
    with fp4_utils.get_fp4_context(exempt, 0) as context:
        assert context is None


# By-name imports: the routing lives inside the function that they bind.


def importers_by_name() -> list[str]:
    """The modules of Megatron with a top-level ``from ...fp4_utils import get_fp4_context``."""
    root = Path(megatron.core.__file__).parent
    found = []
    for path in sorted(root.rglob("*.py")):
        if "get_fp4_context" not in (text := path.read_text(encoding="utf-8")):
            continue
        for node in ast.parse(text).body:
            names = [alias.name for alias in getattr(node, "names", [])]
            if isinstance(node, ast.ImportFrom) and "get_fp4_context" in names:
                parts = path.relative_to(root).with_suffix("").parts
                found.append(".".join(("megatron.core", *parts)))
    return found


@pytest.mark.parametrize(
    "importer",
    [
        "megatron.core.transformer.transformer_block",
        pytest.param(
            "megatron.core.recompute",
            marks=pytest.mark.upstream("megatron-lm>=0.18", reason="no such module before"),
        ),
    ],
)
def test_by_name_imports_bind_the_routed_function(importer: str) -> None:
    """There is one get_fp4_context, whoever imported it and when."""
    found = importers_by_name()
    assert importer in found
    for name in found:
        assert importlib.import_module(name).get_fp4_context is fp4_utils.get_fp4_context


# With a Transformer Engine that records: what real blocks enter.


@pytest.fixture(scope="module")
def outcomes() -> dict[str, str]:
    """Outcome per scenario, from a process of its own."""
    return ranks.run("support.fp4_contexts:outcomes", world=1)[0]


@pytest.mark.parametrize(
    ("scenario", "contexts"),
    [("nvfp4", "te True nvfp4 fp8_dpa=False, te True nvfp4 fp8_dpa=False"), ("no fp4", "")],
)
def test_stock_contexts_stay(outcomes: dict[str, str], scenario: str, contexts: str) -> None:
    """One context per layer with FP4, none without."""
    assert outcomes[scenario] == contexts


@pytest.mark.control("NVFP4BlockScaling and custom are the only supported")
def test_mxfp4_context(outcomes: dict[str, str]) -> None:
    """One context per layer, with the recipe of Transformer Engine."""
    assert outcomes["mxfp4"] == "te True mxfp4, te True mxfp4"


@pytest.mark.control("unexpected keyword argument 'fp4_use_native_te_autocast'")
@pytest.mark.parametrize("scenario", ["native flag", "provider, native flag"])
def test_native_flag(outcomes: dict[str, str], scenario: str) -> None:
    """Transformer Engine's autocast runs, also where a provider is registered."""
    assert outcomes[scenario] == "te True mxfp4, te True mxfp4"


@pytest.mark.control("has no hook for an FP4 context provider")
def test_registration(outcomes: dict[str, str]) -> None:
    """Registering needs the patch; twice the same is fine; another must deregister the first."""
    assert outcomes["registration"] == ""
    assert outcomes["same registration"] == ""
    assert "is already the FP4 context provider" in outcomes["second registration"]
    assert outcomes["deregistration"] == ""
    assert outcomes["afterwards"] == outcomes["nvfp4"]


@pytest.mark.parametrize(
    ("scenario", "contexts"),
    [
        ("provider", "provider mxfp4, provider mxfp4"),
        ("provider, recompute", ", ".join(["provider nvfp4"] * 4)),
        ("provider, bf16 first layer", "provider nvfp4"),
    ],
)
@pytest.mark.control(r"\+ te True nvfp4|\+ ValueError: NVFP4BlockScaling and custom are the only")
def test_provider(outcomes: dict[str, str], scenario: str, contexts: str) -> None:
    """A registered provider gets every FP4 layer, in recomputation too, and no BF16 one."""
    assert outcomes[scenario] == contexts


@pytest.mark.control(" in ''")
def test_captured_graphs_refuse_the_provider(outcomes: dict[str, str]) -> None:
    """A graph captured by Transformer Engine runs Transformer Engine's autocast."""
    error = outcomes["provider, graphs"]
    assert "ValueError: cuda_graph_impl='transformer_engine' captures" in error


def test_provider_leaves_the_rest_alone(outcomes: dict[str, str]) -> None:
    """No FP4, no provider; FP4 parameters are made by Transformer Engine."""
    assert outcomes["provider, no fp4"] == ""
    assert outcomes["provider, init"] == "te init True nvfp4 fp8_dpa=False"


@pytest.mark.control(" in 'ValueError: NVFP4BlockScaling and custom are the only")
@pytest.mark.parametrize(
    ("scenario", "message"),
    [
        ("te without mxfp4", "RuntimeError: fp4_recipe='mxfp4' needs MXFP4BlockScaling, which "),
        ("te without mxfp4", "Transformer Engine 2.18.0 (/fake/transformer_engine/__init__.py)"),
        ("te without mxfp4", "put one of them first on PYTHONPATH"),
        ("fp8 attention", "ValueError: fp8_dot_product_attention is not supported with fp4_recipe"),
    ],
)
def test_missing_pieces_are_errors(outcomes: dict[str, str], scenario: str, message: str) -> None:
    """Each says what is missing and what to do."""
    assert message in outcomes[scenario]


@pytest.mark.parametrize(
    ("scenario", "message"),
    [
        ("unknown recipe", "ValueError: NVFP4BlockScaling and custom are the only supported"),
        ("old te", "ValueError: FP4 support requires TransformerEngine version >= 2.7.0.dev0"),
    ],
)
def test_stock_errors_stay(outcomes: dict[str, str], scenario: str, message: str) -> None:
    """An unknown recipe and an old Transformer Engine stay errors."""
    assert outcomes[scenario].startswith(message)
