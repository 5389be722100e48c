# SPDX-License-Identifier: Apache-2.0
"""What all sections share: unknown keys refused, values frozen, types taken literally."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field


class Section(BaseModel):
    """A group of keys. Nothing is converted: a quoted number is text, and text is no number."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        strict=True,
        allow_inf_nan=False,
        use_attribute_docstrings=True,
        protected_namespaces=(),
        validate_default=True,
    )


def _to_tuple(value: Any) -> Any:
    """YAML has lists; a frozen recipe has tuples."""
    return tuple(value) if isinstance(value, list) else value


Positive = Annotated[int, Field(gt=0)]
NotNegative = Annotated[int, Field(ge=0)]
PositiveNumber = Annotated[float, Field(gt=0)]
Share = Annotated[float, Field(ge=0, le=1)]
Texts = Annotated[tuple[str, ...], BeforeValidator(_to_tuple)]
Integers = Annotated[tuple[Positive, ...], BeforeValidator(_to_tuple)]
