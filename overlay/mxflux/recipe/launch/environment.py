# SPDX-License-Identifier: Apache-2.0
"""The environment of the ranks: what is set, replaced, removed and handed on, and why."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from mxflux.recipe.launch import variables

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from mxflux.recipe.launch.variables import Variable
    from mxflux.recipe.schema import Recipe

Action = Literal["set", "replace", "unset", "keep"]


@dataclass(frozen=True)
class Change:
    """One variable of the ranks' environment; ``inherited`` is what this process has."""

    action: Action
    name: str
    value: str | None
    inherited: str | None
    reason: str

    def __str__(self) -> str:
        if self.action == "unset":
            return f"unset    {self.name} (was {self.inherited!r}): {self.reason}"
        was = f" (was {self.inherited!r})" if self.action == "replace" else ""
        return f"{self.action:8} {self.name}={self.value}{was}: {self.reason}"


@dataclass(frozen=True)
class EnvironmentPlan:
    """Every change, sorted by name, and what does not let the run start."""

    changes: tuple[Change, ...]
    problems: tuple[str, ...] = ()

    def apply(self, inherited: Mapping[str, str]) -> dict[str, str]:
        """Return ``inherited`` with the changes made."""
        result = dict(inherited)
        for change in self.changes:
            if change.value is None:
                result.pop(change.name, None)
            else:
                result[change.name] = change.value
        return result

    def to_json(self) -> dict[str, Any]:
        """Return the record of run.json: values set, names unset, values replaced, values kept."""
        by_action = {
            action: {c.name: c for c in self.changes if c.action == action}
            for action in ("set", "replace", "unset", "keep")
        }
        return {
            "set": {n: c.value for a in ("set", "replace") for n, c in by_action[a].items()},
            "replaced": {n: c.inherited for n, c in by_action["replace"].items()},
            "unset": {n: c.inherited for n, c in by_action["unset"].items()},
            "kept": {n: c.value for n, c in by_action["keep"].items()},
        }


def plan(recipe: Recipe, inherited: Mapping[str, str]) -> EnvironmentPlan:
    """Return what becomes of ``inherited`` for the ranks of ``recipe``."""
    owned = {variable.name: variable for variable in variables.of(recipe)}
    extra = dict(recipe.launch.environment)
    changes = [
        *_owned(owned.values(), inherited, extra),
        *_extra(extra, owned, inherited),
        *_family(inherited, {*owned, *extra}),
        *_recorded(inherited, {*owned, *extra}),
    ]
    problems = [*_refused(extra, owned), *_conflicts(recipe, owned, inherited)]
    return EnvironmentPlan(tuple(sorted(changes, key=lambda c: c.name)), tuple(problems))


def _owned(owned: Any, inherited: Mapping[str, str], extra: Mapping[str, str]) -> Iterator[Change]:
    for variable in owned:
        if variable.value is None and variable.name in extra:
            continue
        change = _change(variable.name, variable.value, inherited, variable.reason)
        if change is not None:
            yield change


def _change(
    name: str, value: str | None, inherited: Mapping[str, str], reason: str
) -> Change | None:
    before = inherited.get(name)
    if value is None:
        return None if before is None else Change("unset", name, None, before, reason)
    action: Action = "set" if before in (None, value) else "replace"
    return Change(action, name, value, before, reason)


def _extra(
    extra: Mapping[str, str], owned: Mapping[str, Variable], inherited: Mapping[str, str]
) -> Iterator[Change]:
    for name, value in extra.items():
        if name not in owned or owned[name].value is None:
            change = _change(name, value, inherited, "launch.environment of the recipe")
            if change is not None:
                yield change


def _family(inherited: Mapping[str, str], named: set[str]) -> Iterator[Change]:
    for name, value in inherited.items():
        if name in named or not name.startswith(variables.FAMILIES):
            continue
        if name in variables.LOCATIONS:
            yield Change("keep", name, value, value, "where something lies, or what is allotted")
        else:
            reason = "not from the recipe; to set it: launch.environment"
            yield Change("unset", name, None, value, reason)


def _recorded(inherited: Mapping[str, str], named: set[str]) -> Iterator[Change]:
    for name, value in inherited.items():
        if name not in named and name.startswith(variables.RECORDED):
            yield Change("keep", name, value, value, "of this machine; handed on and recorded")


def _refused(extra: Mapping[str, str], owned: Mapping[str, Variable]) -> Iterator[str]:
    for name in extra:
        variable = owned.get(name)
        if variable is not None and (variable.value is not None or not _may_be_asked_for(variable)):
            yield (
                f"launch.environment: {name} belongs to the launcher ({variable.reason}); "
                "remove it from the recipe"
            )


def _may_be_asked_for(variable: Variable) -> bool:
    """Whether a recipe may name a variable that is otherwise removed: to look for a fault."""
    return variable.reason.endswith("launch.environment")


def _conflicts(
    recipe: Recipe, owned: Mapping[str, Variable], inherited: Mapping[str, str]
) -> Iterator[str]:
    """Name inherited values that would train another model than the recipe says."""
    if recipe.device == "cpu":
        return
    for variable in owned.values():
        before = inherited.get(variable.name)
        if not variable.numerics or not before or before == variable.value:
            continue
        wanted = "unset" if variable.value is None else f"{variable.name}={variable.value}"
        yield (
            f"{variable.name}={before} is exported here, and the recipe says {wanted} "
            f"({variable.reason}): `unset {variable.name}`, or change the recipe"
        )
