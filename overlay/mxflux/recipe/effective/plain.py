# SPDX-License-Identifier: Apache-2.0
"""Values of Megatron's objects as a recipe writes them."""

from __future__ import annotations

import enum
from typing import Any

SHORT_DTYPES = {"float32": "fp32", "bfloat16": "bf16", "float16": "fp16", "uint8": "fp8"}
"""Names of torch's dtypes as Megatron's command line has them."""


def plain(value: Any) -> Any:
    """Enums as their names, dtypes without ``torch.``, tuples as lists."""
    if isinstance(value, enum.Enum):
        return value.name
    if isinstance(value, tuple | list):
        return [plain(item) for item in value]
    text = str(value)
    return text.removeprefix("torch.") if text.startswith("torch.") else value


def short_dtype(value: Any) -> Any:
    """A dtype as ``fp32``, ``bf16`` and so on; a name as it is."""
    name = plain(value)
    return SHORT_DTYPES.get(name, name) if isinstance(name, str) else name
