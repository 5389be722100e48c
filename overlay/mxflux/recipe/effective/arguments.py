# SPDX-License-Identifier: Apache-2.0
"""Megatron's own parser and checks, run on a recipe's arguments. Needs Megatron's training part."""

from __future__ import annotations

import argparse
import contextlib
import functools
import importlib.util
import io
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

BACKPORTED = frozenset({"eval_micro_batch_size", "eval_global_batch_size"})
"""Arguments since 0.18 that mxflux.evaluation serves for earlier releases, too."""


class ArgumentsError(ValueError):
    """Megatron has no such argument, or refuses its value."""


def is_available() -> bool:
    """Whether this release ships megatron.training (0.17 and later do)."""
    return importlib.util.find_spec("megatron.training") is not None


def validated(arguments: Mapping[str, Any], world_size: int) -> argparse.Namespace:
    """Megatron's ``args`` after it parsed and checked ``arguments`` as rank 0 of ``world_size``.

    Raises ArgumentsError in Megatron's words, and for arguments that this release does not know.
    """
    from megatron.training.arguments import validate_args

    parser = _parser()
    known = {action.dest for action in parser._actions}
    unknown = {name: arguments[name] for name in arguments if name not in known}
    try:
        parsed = parser.parse_args(list(command_line(parser, arguments)))
    except argparse.ArgumentError as error:
        raise ArgumentsError(f"Megatron's command line refuses the recipe: {error}") from error
    for name in unknown.keys() & BACKPORTED:
        setattr(parsed, name, unknown.pop(name))
    _refuse(unknown)
    # What Megatron's parse_args adds to the namespace from the environment and the command line.
    parsed.rank, parsed.world_size = 0, world_size
    parsed._is_global_batch_size_explicitly_specified = True
    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed):
            validate_args(parsed)
    except (AssertionError, ValueError, RuntimeError, SystemExit) as error:
        said = str(error) or (printed.getvalue().splitlines() or ["nothing"])[-1]
        raise ArgumentsError(f"Megatron's validate_args refuses the recipe: {said}") from error
    return parsed


@functools.cache
def _parser() -> argparse.ArgumentParser:
    from megatron.training.arguments import add_megatron_arguments

    parser = argparse.ArgumentParser(prog="megatron", allow_abbrev=False, exit_on_error=False)
    add_megatron_arguments(parser)
    return parser


def _refuse(unknown: Mapping[str, Any]) -> None:
    asked = {name: value for name, value in unknown.items() if value not in {None, False}}
    if not asked:
        return
    from megatron.core import __version__

    shown = ", ".join(f"{name}={value!r}" for name, value in asked.items())
    raise ArgumentsError(
        f"Megatron-LM {__version__} has no argument for {shown}: run the tree that `mxtree build` "
        "makes, or take the key out of the recipe"
    )


def command_line(parser: argparse.ArgumentParser, arguments: Mapping[str, Any]) -> Iterator[str]:
    """The options that make ``parser`` return ``arguments``; those it does not know are left out.

    Raises ArgumentsError for a value that no option can express.
    """
    by_name: dict[str, list[argparse.Action]] = {}
    for action in parser._actions:
        by_name.setdefault(action.dest, []).append(action)
    for name, value in arguments.items():
        if name in by_name:
            yield from _option(name, value, by_name[name])


def _option(name: str, value: Any, actions: list[argparse.Action]) -> list[str]:
    if isinstance(value, bool):
        return _flag(name, value, actions)
    if value is None:
        return []
    option = next((a.option_strings[-1] for a in actions if a.nargs != 0), None)
    if option is None:
        raise ArgumentsError(f"Megatron's {name} is a flag, not {value!r}")
    values = value if isinstance(value, list | tuple) else [value]
    return [option, *map(str, values)]


def _flag(name: str, value: bool, actions: list[argparse.Action]) -> list[str]:
    for action in actions:
        if isinstance(action, argparse.BooleanOptionalAction):
            negated = [o for o in action.option_strings if o.startswith("--no-")]
            return list(action.option_strings[:1] if value else negated[:1])
        if getattr(action, "const", None) is value:
            return list(action.option_strings[:1])
    if any(bool(action.default) == value for action in actions):
        return []
    raise ArgumentsError(f"no option of Megatron sets {name} to {value}")
