# SPDX-License-Identifier: Apache-2.0
"""attention_backend: a name from any door becomes an AttnBackend, or an error that says why not."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from megatron.core.models.common.language_module.language_module import LanguageModule
from megatron.core.transformer.enums import AttnBackend
from megatron.core.transformer.transformer_config import MLATransformerConfig
from support import megatron_config
from support.megatron_config import CONTAINERS, TRAINING

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

NAMES = ["flash", "fused", "unfused", "local", "auto"]


def as_dataclass(value: Any) -> Any:
    """attention_backend of a TransformerConfig given ``value``."""
    return megatron_config.direct(attention_backend=value).attention_backend


def as_mla_dataclass(value: Any) -> Any:
    """The same for a subclass with its own __post_init__."""
    config = MLATransformerConfig(**megatron_config.TINY, attention_backend=value)
    return config.attention_backend


def as_container(value: Any) -> Any:
    """The same through the instantiation of 0.18's config containers (to_yaml and from_yaml)."""
    config = {**megatron_config.TINY, "attention_backend": value}
    target = megatron_config.TRANSFORMER_CONFIG
    return megatron_config.from_container(target, config).attention_backend


@pytest.fixture
def as_yaml_cfg(tmp_path: Path) -> Callable[[Any], Any]:
    """The same through a --yaml-cfg file."""

    def build(value: Any) -> Any:
        settings = {"attention_backend": value}
        return megatron_config.from_yaml_cfg(tmp_path, settings).attention_backend

    return build


DOORS = [
    "as_dataclass",
    "as_mla_dataclass",
    pytest.param("as_container", marks=CONTAINERS),
    pytest.param("as_yaml_cfg", marks=TRAINING),
]


@pytest.fixture(params=DOORS)
def door(request: pytest.FixtureRequest) -> Callable[[Any], Any]:
    """Each way from a value in a config to config.attention_backend."""
    name = request.param
    return request.getfixturevalue(name) if name == "as_yaml_cfg" else globals()[name]


@pytest.mark.control("assert .* is <AttnBackend")
@pytest.mark.parametrize(
    ("value", "member"),
    [*((name, name) for name in NAMES), (" fused ", "fused"), ("", "auto"), ("  ", "auto")],
)
def test_name_becomes_member(door: Callable[[Any], Any], value: str, member: str) -> None:
    """Names are stripped; blank is auto; the result is a member and never a str."""
    assert door(value) is AttnBackend[member]


@pytest.mark.control("assert None is <AttnBackend")
def test_none_is_auto(door: Callable[[Any], Any]) -> None:
    """An empty value in a file means the default."""
    assert door(None) is AttnBackend.auto


@pytest.mark.control("DID NOT RAISE")
@pytest.mark.parametrize("value", ["FUSED", "bogus", "AttnBackend.fused", 2, False])
def test_unknown_name_is_refused(door: Callable[[Any], Any], value: Any) -> None:
    """Case matters; the error names the raw value and all valid names."""
    with pytest.raises(Exception, match="Unknown attention_backend") as refusal:
        door(value)
    chain = [refusal.value, refusal.value.__cause__]
    assert any(isinstance(error, ValueError) for error in chain)
    assert f"{value!r}. Choose from: {NAMES}." in str(refusal.value)


@pytest.mark.parametrize("member", AttnBackend)
def test_member_and_omission_are_kept(member: AttnBackend) -> None:
    """What worked before works still."""
    assert as_dataclass(member) is member
    assert megatron_config.direct().attention_backend is AttnBackend.auto


@TRAINING
@pytest.mark.control("Missing argument attention_backend")
def test_omitted_in_yaml_cfg_is_auto(tmp_path: Path) -> None:
    """A --yaml-cfg file need not name it."""
    config = megatron_config.from_yaml_cfg(tmp_path, {}, without=("attention_backend",))
    assert config.attention_backend is AttnBackend.auto


@TRAINING
def test_other_omissions_in_yaml_cfg_are_refused(tmp_path: Path) -> None:
    """Upstream's check of --yaml-cfg files stays for every other field."""
    with pytest.raises(Exception, match="Missing argument num_layers"):
        megatron_config.from_yaml_cfg(tmp_path, {}, without=("num_layers",))


@TRAINING
@pytest.mark.parametrize(
    ("flags", "member"),
    [
        pytest.param((), "auto"),
        pytest.param(("--attention-backend=fused",), "fused"),
        pytest.param(
            ("--attention-backend= fused ",),
            "fused",
            marks=pytest.mark.control("KeyError: ' fused '"),
        ),
        pytest.param(("--attention-backend=",), "auto", marks=pytest.mark.control("KeyError: ''")),
    ],
)
def test_command_line(monkeypatch: pytest.MonkeyPatch, flags: tuple[str, ...], member: str) -> None:
    """The flag follows the same rule, down to the config that training builds from it."""
    args = megatron_config.parse(monkeypatch, *flags)
    assert args.attention_backend is AttnBackend[member]
    assert megatron_config.from_arguments(args).attention_backend is AttnBackend[member]


@TRAINING
@pytest.mark.control("KeyError: 'FUSED'")
def test_unknown_name_on_the_command_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """An argparse error that names value and choices, not a traceback."""
    with pytest.raises(SystemExit) as stop:
        megatron_config.parse(monkeypatch, "--attention-backend=FUSED")
    assert stop.value.code == 2
    error = capsys.readouterr().err
    assert "error: argument --attention-backend: Unknown attention_backend 'FUSED'." in error
    assert f"Choose from: {NAMES}." in error


@TRAINING
@pytest.mark.control("assert 'fused' is <AttnBackend")
def test_string_in_the_namespace(monkeypatch: pytest.MonkeyPatch) -> None:
    """A launcher that fills the namespace itself gets the member from validate_args."""
    args = megatron_config.parse(monkeypatch)
    args.attention_backend = "fused"
    megatron_config.validate(args)
    assert args.attention_backend is AttnBackend.fused


@TRAINING
@pytest.mark.control("DID NOT RAISE")
def test_string_local_meets_the_local_check(monkeypatch: pytest.MonkeyPatch) -> None:
    """'local' without --spec local is refused as AttnBackend.local is."""
    args = megatron_config.parse(monkeypatch, "--spec", "some.module", "spec")
    args.attention_backend = "local"
    with pytest.raises(AssertionError, match="only supported with --spec local"):
        megatron_config.validate(args)


@pytest.mark.control("DID NOT RAISE")
@pytest.mark.parametrize("value", ["fused", "auto", "", None])
def test_string_after_the_config_is_built(
    monkeypatch: pytest.MonkeyPatch, value: str | None
) -> None:
    """Assigned later, it is refused where it would otherwise select nothing."""
    for name in ("FLASH", "FUSED", "UNFUSED"):
        monkeypatch.delenv(f"NVTE_{name}_ATTN", raising=False)
    config = megatron_config.direct()
    config.attention_backend = value
    with pytest.raises(TypeError, match=r"attention_backend is .* which selects nothing"):
        LanguageModule._set_attention_backend(SimpleNamespace(config=config))
