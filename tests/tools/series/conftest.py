# SPDX-License-Identifier: Apache-2.0
"""A patch file in canonical bytes."""

from __future__ import annotations

import pytest

RAW = b"""From 0000000000000000000000000000000000000000 Mon Sep 17 00:00:00 2001
From: Ada L <ada@example.org>
Date: Tue, 1 Dec 2026 00:00:00 +0000
Subject: Count to three

Description: Two was not enough for anybody who has three heads,
 as every hydra will tell.
Origin: vendor, mxtree authors
Upstream-Status: Pending
Changes: code.count,
 code.Counter.total
Proven-By: tests/tree/test_code.py::test_count

diff --git a/code.py b/code.py
index 0123456789012345678901234567890123456789..1234567890123456789012345678901234567890 100644
--- a/code.py
+++ b/code.py
@@ -1,3 +1,3 @@
 def count():
-    return 2
+    return 3
 # end
"""


@pytest.fixture
def raw() -> bytes:
    """A patch as `mxtree export` writes it."""
    return RAW
