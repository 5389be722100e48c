# SPDX-License-Identifier: Apache-2.0
"""A folder of pictures and what they show: files, captions, square RGB tensors."""

from __future__ import annotations

import csv
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from .errors import DataError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

SUFFIXES = (".bmp", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp")
UTF8 = "utf-8-sig"
"""UTF-8 with or without the mark that Windows' programs put in front."""
_FILE_COLUMNS = ("file_name", "file")
_TEXT_COLUMNS = ("text", "caption")


@dataclass(frozen=True)
class Captioned:
    """A picture's file, its name within the folder, and what it shows."""

    path: Path
    name: str
    caption: str


def captioned_pictures(folder: Path, captions: Path | None = None) -> list[Captioned]:
    """Every picture below ``folder``, sorted by name, with its caption.

    Captions come from ``captions`` (.jsonl, .csv or .tsv with file_name and text) or, without it,
    from a .txt file beside each picture. Raises DataError listing every picture without one and
    every caption without a picture.
    """
    if not folder.is_dir():
        raise DataError(f"{folder}: there is no such folder")
    paths = sorted(
        path for path in folder.rglob("*") if path.suffix.lower() in SUFFIXES and path.is_file()
    )
    if not paths:
        raise DataError(f"{folder}: there is no picture ({', '.join(SUFFIXES)})")
    names = {path.relative_to(folder).as_posix(): path for path in paths}
    texts = _beside(names) if captions is None else read_captions(captions)
    problems = [f"no caption: {name}" for name in names if name not in texts]
    problems += [f"no picture: {name}" for name in texts if name not in names]
    if problems:
        source = captions or f"the .txt files in {folder}"
        raise DataError(f"{source}: {len(problems)} problem(s):", problems)
    return [Captioned(path, name, texts[name]) for name, path in names.items()]


def read_captions(path: Path) -> dict[str, str]:
    """File name -> caption. Raises DataError naming file and line."""
    try:
        with path.open(encoding=UTF8, newline="") as file:
            if path.suffix == ".jsonl":
                return _unique(path, _from_jsonl(path, file))
            if path.suffix in {".csv", ".tsv"}:
                delimiter = "," if path.suffix == ".csv" else "\t"
                return _unique(path, _from_table(path, csv.DictReader(file, delimiter=delimiter)))
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: not UTF-8 ({error})") from error
    except csv.Error as error:
        raise DataError(f"{path}: not a table ({error})") from error
    except FileNotFoundError:
        raise DataError(f"{path}: there is no such file") from None
    raise DataError(f"{path}: captions are read from .jsonl, .csv or .tsv")


def square(path: Path, side: int) -> Tensor:
    """A picture as [3,side,side] fp32 in [-1,1]: turned upright, shorter side fitted, centred.

    Raises DataError naming the file when it cannot be read.
    """
    from PIL import Image, ImageOps, UnidentifiedImageError

    try:
        with Image.open(path) as opened:
            upright = ImageOps.exif_transpose(opened).convert("RGB")
            fitted = ImageOps.fit(upright, (side, side), Image.Resampling.BICUBIC)
    except (OSError, SyntaxError, ValueError, UnidentifiedImageError,
            Image.DecompressionBombError) as error:  # fmt: skip
        raise DataError(f"{path}: cannot be read as a picture ({error})") from error
    levels = torch.from_numpy(np.asarray(fitted, dtype=np.float32).copy())
    return levels.permute(2, 0, 1) / 127.5 - 1


def _beside(names: Mapping[str, Path]) -> dict[str, str]:
    texts = {}
    for name, path in names.items():
        text = path.with_suffix(".txt")
        if text.is_file():
            try:
                texts[name] = " ".join(text.read_text(encoding=UTF8).split())
            except UnicodeDecodeError as error:
                raise DataError(f"{text}: not UTF-8 ({error})") from error
    return texts


def _from_table(path: Path, rows: csv.DictReader[str]) -> Iterator[tuple[dict[str, str], int]]:
    line = 2
    for row in rows:
        if None in row:
            raise DataError(
                f"{path}:{line}: more columns than the header's {len(rows.fieldnames or ())}: "
                f"quote a text that contains {rows.reader.dialect.delimiter!r}"
            )
        yield row, line
        line = rows.line_num + 1


def _from_jsonl(path: Path, lines: Iterator[str]) -> Iterator[tuple[dict[str, str], int]]:
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError as error:
            raise DataError(f"{path}:{number}: not JSON ({error})") from error
        if not isinstance(row, dict):
            raise DataError(f"{path}:{number}: not a JSON object")
        yield row, number


def _unique(path: Path, rows: Iterator[tuple[Mapping[str, str], int]]) -> dict[str, str]:
    texts: dict[str, str] = {}
    for row, line in rows:
        name = next((row[key] for key in _FILE_COLUMNS if row.get(key)), None)
        text = next((row[key] for key in _TEXT_COLUMNS if row.get(key) is not None), None)
        if not isinstance(name, str) or not isinstance(text, str):
            raise DataError(f"{path}:{line}: needs file_name and text, has {', '.join(row)}")
        if name in texts:
            raise DataError(f"{path}:{line}: {name} has a caption already")
        texts[name] = text
    return texts
