# SPDX-License-Identifier: Apache-2.0
"""What counts as a change of a patch."""

from __future__ import annotations

import pytest

from mxtree.edit.changes import same_content

PATCH = b"""Subject: x

index 1234567..89abcde in prose
---

diff --git a/f b/f
index 1111111111111111111111111111111111111111..2222222222222222222222222222222222222222 100644
--- a/f
+++ b/f
@@ -3,2 +3,2 @@ def f():
-a
+b
 c
"""


@pytest.mark.parametrize(
    ("old", "new", "is_same"),
    [
        (b"1111111111111111", b"3333333333333333", True),
        (b"@@ -3,2 +3,2 @@ def f():", b"@@ -30,2 +31,2 @@ def g():", True),
        (b"@@ -3,2 +3,2 @@", b"@@ -3,3 +3,3 @@", False),
        (b"+b", b"+d", False),
        (b" 100644", b" 100755", True),
        (b"Subject: x", b"Subject: y", False),
        (b"index 1234567", b"index 7654321", False),
        (b" c", b" d", False),
    ],
    ids=["object id", "line number", "hunk size", "added", "mode", "subject", "prose", "context"],
)
def test_same_content(old: bytes, new: bytes, is_same: bool) -> None:
    assert same_content(PATCH, PATCH.replace(old, new)) is is_same
