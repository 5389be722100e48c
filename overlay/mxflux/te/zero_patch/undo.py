# SPDX-License-Identifier: Apache-2.0
"""Set attributes and items of TE's modules so that all of it can be taken back."""

from __future__ import annotations

import sys
from typing import Any

_ABSENT = object()


class Overrides:
    """What was set, and what was there before."""

    def __init__(self) -> None:
        self._before: list[tuple[Any, Any, Any]] = []

    def __len__(self) -> int:
        return len(self._before)

    def attribute(self, owner: Any, name: str, value: Any) -> None:
        """owner.name = value. A class keeps its own entry, staticmethod and all."""
        self._before.append((owner, name, vars(owner).get(name, _ABSENT)))
        setattr(owner, name, value)

    def item(self, mapping: dict[Any, Any], key: Any, value: Any) -> None:
        """mapping[key] = value."""
        self._before.append((mapping, key, mapping.get(key, _ABSENT)))
        mapping[key] = value

    def everywhere(self, owner: Any, name: str, value: Any) -> None:
        """owner.name = value, and the same wherever TE imported the old value by name."""
        old = getattr(owner, name)
        for module_name, module in sorted(sys.modules.items()):
            if module_name.startswith("transformer_engine") and module is not None:
                held = [n for n, v in vars(module).items() if v is old]
                for attribute in held:
                    self.attribute(module, attribute, value)

    def undo(self) -> None:
        """Put everything back, the last first."""
        while self._before:
            owner, name, value = self._before.pop()
            if isinstance(owner, dict):
                owner.pop(name) if value is _ABSENT else owner.__setitem__(name, value)
            elif value is _ABSENT:
                delattr(owner, name)
            else:
                setattr(owner, name, value)
