# SPDX-License-Identifier: Apache-2.0
"""Quoted paths, against git."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mxtree.git import git
from mxtree.series.quoting import quote, unquote

if TYPE_CHECKING:
    from pathlib import Path

ODD = bytes(range(1, 256)).replace(b"/", b"").replace(b"\\", b"") + b'\\ "x'


@given(st.binary(min_size=1))
def test_quoting_and_back(path: bytes) -> None:
    text = quote(path)
    if text == path:
        assert unquote(text) is None
    else:
        assert unquote(text + b" rest") == (path, b" rest")


def test_every_byte_is_quoted_as_git_does(tmp_path: Path) -> None:
    git("init", "--quiet", tmp_path)
    entry = b"100644 %s 0\t%s\0" % (b"1" * 40, ODD)
    git("update-index", "-z", "--index-info", cwd=tmp_path, stdin=entry)
    assert git("ls-files", cwd=tmp_path).rstrip(b"\n") == quote(ODD)


@pytest.mark.parametrize(
    "text", [b'"open', b'"bad \\x escape"', b'"\\400"', b'"\\18"', b"plain", b""]
)
def test_what_is_no_quoted_path(text: bytes) -> None:
    assert unquote(text) is None
