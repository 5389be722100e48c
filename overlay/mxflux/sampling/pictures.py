# SPDX-License-Identifier: Apache-2.0
"""Pictures side by side, written as a PNG in one step."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from mxflux.data.errors import DataError

if TYPE_CHECKING:
    from pathlib import Path

GAP = 4
GREY = 0.0


def grid(pictures: Tensor, columns: int) -> Tensor:
    """One picture [3,H,W] of [B,3,h,w], row by row, with a grey gap between."""
    if columns < 1:
        raise DataError(f"columns={columns} must be positive")
    columns = min(columns, len(pictures))
    rows = -(-len(pictures) // columns)
    _, planes, height, width = pictures.shape
    size = (rows * (height + GAP) + GAP, columns * (width + GAP) + GAP)
    sheet = torch.full((planes, *size), GREY)
    for index, picture in enumerate(pictures):
        row, column = divmod(index, columns)
        top, left = GAP + row * (height + GAP), GAP + column * (width + GAP)
        sheet[:, top : top + height, left : left + width] = picture
    return sheet


def write_png(picture: Tensor, path: Path) -> None:
    """Write a picture [3,H,W] in [-1,1]; ``path`` is replaced only when the file is complete.

    Raises DataError when the values are not finite or the name does not end in .png.
    """
    if path.suffix.lower() != ".png":
        raise DataError(f"{path}: pictures are written as .png")
    if not torch.isfinite(picture).all():
        raise DataError(f"{path}: the picture has values that are not finite; nothing is written")
    from PIL import Image

    levels = ((picture.clamp(-1, 1) + 1) * 127.5).round().to(torch.uint8)
    image = Image.fromarray(levels.permute(1, 2, 0).contiguous().numpy(), "RGB")
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_name(f".{path.name}.partial-{os.getpid()}")
    try:
        image.save(scratch, format="PNG")
        scratch.replace(path)
    finally:
        scratch.unlink(missing_ok=True)
