# SPDX-License-Identifier: Apache-2.0
"""`mxtree lint`: every malformed thing at its line, all in one pass."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Protocol

import pytest

from mxtree.lint import lint

if TYPE_CHECKING:
    import subprocess
    from pathlib import Path

    from mxtree.series import Problem

    class Workbench(Protocol):
        """See conftest.py."""

        project: Project
        folder: Path
        patch: Path
        raw: bytes

        def replace(self, old: bytes, new: bytes) -> None: ...
        def import_releases(self) -> None: ...
        def problems(self) -> list[Problem]: ...
        def rules(self) -> list[tuple[str, int, str]]: ...
        def only(self) -> Problem: ...

    class Runner(Protocol):
        """See the conftest.py above."""

        def __call__(self, *args: str | Path) -> subprocess.CompletedProcess[str]: ...

    from mxtree.project import Project


def test_a_project_that_is_all_right_has_no_problems(full_bench: Workbench) -> None:
    full_bench.import_releases()
    report = lint(full_bench.project)
    assert report.problems == []
    assert report.notes == []
    assert (report.series, report.patches) == (2, 2)


def test_what_could_not_be_compared_is_said(full_bench: Workbench) -> None:
    report = lint(full_bench.project)
    assert report.problems == []
    assert [(note.path, note.rule, note.fix) for note in report.notes] == [
        (full_bench.folder, "source-missing", "mxtree fetch megatron-lm@1.0"),
        (
            full_bench.project.series_dir("transformer-engine", "2.0"),
            "source-missing",
            "mxtree fetch transformer-engine@2.0",
        ),
    ]


FIELDS = [
    (b"Origin: vendor, mxtree authors\n", b"", 6, "field-missing", "Origin"),
    (b"Description: It could not.\n", b"", 6, "field-missing", "Description"),
    (b"Description: It could not.", b"Description:", 6, "field-empty", "Description"),
    (b"Origin: vendor", b"Origin: somebody", 7, "field-form", "somebody"),
    (b"Status: Pending", b"Status: pending", 8, "field-form", "'pending'"),
    (b"Status: Pending", b"Status: Pending since May", 8, "field-form", "Pending"),
    (b"Status: Pending", b"Status: Submitted", 8, "field-form", "Submitted URL"),
    (b"Status: Pending", b"Status: Backport soon", 8, "field-form", "COMMIT-OR-URL"),
    (b"Status: Pending", b"Status: Inappropriate", 8, "field-form", "REASON"),
    (b"Origin:", b"Orign: x\nOrigin:", 7, "field-unknown", "did you mean Origin?"),
    (b"Origin:", b"origin: x\nOrigin:", 7, "field-unknown", "did you mean Origin?"),
    (b"Origin:", b"Xyzzy: x\nOrigin:", 7, "field-unknown", "known: Description"),
    (b"Origin:", b"Bug: 17\nOrigin:", 7, "field-form", "a URL"),
    (b"Origin:", b"Last-Update: May\nOrigin:", 7, "field-form", "YYYY-MM-DD"),
    (b"Origin:", b"Reviewed-by: me\nOrigin:", 7, "field-form", "Name <email>"),
    (b"code.count", b"code count", 9, "changes-form", "dotted names"),
    (b"code.count", b"code.count, other.name", 9, "changes-elsewhere", "begin with code"),
    (b"code.count", b"codes", 9, "changes-elsewhere", "begin with code"),
    (b"::test_count", b"", 10, "proof-form", "test_x.py::test_name"),
    (b"tests/tree/", b"tests/../", 10, "proof-form", "test_x.py::test_name"),
    (b"test_code.py", b"test_none.py", 10, "proof-missing", "no tests/tree/test_none.py"),
    (b"::test_count", b"::test_none", 10, "proof-missing", "has no test_none"),
    (b"::test_count", b"::TestGroup::test_no", 10, "proof-missing", "no TestGroup::test_no"),
    (b"::test_count", b"::test_without_control", 10, "proof-control", "no negative control"),
]


@pytest.mark.parametrize(("old", "new", "line", "rule", "word"), FIELDS)
def test_a_malformed_field_is_found_at_its_line(
    bench: Workbench, old: bytes, new: bytes, line: int, rule: str, word: str
) -> None:
    bench.replace(old, new)
    found = [item for item in bench.problems() if item.rule != "changes-incomplete"]
    assert [(item.path, item.line, item.rule) for item in found] == [(bench.patch, line, rule)]
    assert word in found[0].message + found[0].fix


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"Status: Pending", b"Status: Submitted https://example.org/pull/1"),
        (b"Status: Pending", b"Status: Backport 0123456789abcdef0123456789abcdef01234567"),
        (b"Status: Pending", b"Status: Backport https://example.org/commit/1"),
        (b"Status: Pending", b"Status: Inappropriate the release has no such users"),
        (b"Origin: vendor, mxtree authors", b"Origin: upstream"),
        (b"Origin: vendor, mxtree authors", b"Origin: commit:0123456789ab, backported"),
        (b"Origin: vendor", b"Reviewed-by: A <a@b.c>\nReviewed-by: B <b@b.c>\nOrigin: vendor"),
        (b"::test_count", b"::TestGroup::test_inside"),
        (b"::test_count", b"::test_parametrised[1]"),
        (b"code.count", b"code.count,\n code.other"),
        (b"code.count", b"code"),
    ],
)
def test_every_accepted_form(bench: Workbench, old: bytes, new: bytes) -> None:
    bench.replace(old, new)
    assert bench.rules() == []


def test_a_field_twice_is_found_at_both_lines(bench: Workbench) -> None:
    bench.replace(b"Origin:", b"Origin: vendor\nOrigin:")
    name = bench.patch.name
    assert bench.rules() == [(name, 7, "field-twice"), (name, 8, "field-twice")]


def test_a_file_that_changes_does_not_name_is_found(bench: Workbench) -> None:
    bench.replace(b"code.count", b"nothing")
    assert [rule for _, _, rule in bench.rules()] == ["changes-incomplete", "changes-elsewhere"]


def test_a_file_that_is_not_python_is_named_by_its_path(bench: Workbench) -> None:
    bench.raw = bench.raw.replace(b"/code.py", b"/setup.cfg")
    bench.replace(b"code.count", b"setup.cfg")
    assert bench.rules() == []


FORM = [
    (b"0" * 40 + b" Mon", b"1" * 40 + b" Mon", 1, "form-head"),
    (b"Subject: Teach", b"Subject:  Teach", 2, "form-mail"),
    (b"Subject: Teach", b"To: a@example.org\nSubject: Teach", 4, "form-head"),
    (b"Subject: Teach", b"Subject: =?utf-8?q?Teach?=", 4, "form-head"),
    (
        b"+0000\nSubject: Teach megatron-lm to count\n",
        b"+0000\nSubject: \xc3\xa9\n",
        4,
        "form-head",
    ),
    (b"It could not.", b"It could not. ", 6, "form-head"),
    (b"\n\ndiff", b"\n\n\ndiff", 13, "form-head"),
    (b"\n\ndiff", b"\n---\n code.py | 2 +-\n\ndiff", 11, "message-cut"),
    (b"\n\ndiff", b"\n\nIndex: code.py\ndiff", 12, "message-cut"),
    (b"\n\ndiff", b"\n\ndiff --git a/lost b/lost\n\ndiff", 13, "form-diff"),
    (b"\n\ndiff", b"\n\n-- >8 -- cut\n\ndiff", 12, "message-scissors"),
    (b"100644\n---", b"100644\nsome words\n---", 14, "form-diff"),
    (b"Description: It", b"From: Bob <b@example.org>\n\nDescription: It", 2, "form-head"),
    (b"Description: It", b"Subject: no\n\nDescription: It", 6, "form-mail"),
    (b"Origin: v", b"From here on\nOrigin: v", 7, "form-mail"),
    (b"Origin: v", b"caf\xe9\nOrigin: v", 7, "form-mail"),
    (b"Origin: v", b"a\0b\nOrigin: v", 7, "form-mail"),
    (b"Subject: T", b"Subject: x\nSubject: T", 2, "form-mail"),
    (
        b"\n\nDescription",
        b"\nContent-Type: text/plain; charset=latin1\n\nDescription",
        2,
        "form-mail",
    ),
    (b"From 000", b"From ", 1, "form-mail"),
    (b"+    return 1\n", b"+    return 1\n-- \n2.39.5\n\n", 20, "form-junk"),
    (b"+    return 1\n", b"+    return 1\n+lost\n", 20, "form-diff"),
    (b"@@ -1,2 +1,2 @@", b"@@ -1,3 +1,2 @@", 20, "form-diff"),
    (b"@@ -1,2 +1,2 @@", b"@@ -3,2 +3,2 @@", 16, "form-hunk"),
]


@pytest.mark.parametrize(("old", "new", "line", "rule"), FORM)
def test_what_is_not_canonical_is_found_at_its_line(
    bench: Workbench, old: bytes, new: bytes, line: int, rule: str
) -> None:
    bench.replace(old, new)
    assert (bench.patch.name, line, rule) in bench.rules()


def test_abbreviated_ids_cannot_be_merged(bench: Workbench) -> None:
    bench.raw = b"\n".join(
        line[:15] + b".." + line[48:55] + b" 100644" if line.startswith(b"index ") else line
        for line in bench.raw.split(b"\n")
    )
    bench.patch.write_bytes(bench.raw)
    assert bench.only().rule == "form-index"


@pytest.mark.parametrize(
    ("hunk", "is_wide"),
    [
        (b"@@ -9,7 +9,7 @@\n a\n b\n c\n-d\n+e\n f\n g\n h\n", False),
        (b"@@ -8,8 +8,8 @@\n z\n a\n b\n c\n-d\n+e\n f\n g\n h\n", True),
        (b"@@ -9,8 +9,8 @@\n a\n b\n c\n-d\n+e\n f\n g\n h\n i\n", True),
        (b"@@ -1,8 +1,8 @@\n-a\n+b\n 1\n 2\n 3\n 4\n 5\n 6\n-c\n+d\n", False),
        (b"@@ -1,9 +1,9 @@\n-a\n+b\n 1\n 2\n 3\n 4\n 5\n 6\n 7\n-c\n+d\n", True),
        (b"@@ -9,6 +9,6 @@\n b\n c\n-d\n+e\n f\n g\n h\n", True),
        (b"@@ -1,2 +1,2 @@\n-a\n+b\n c\n@@ -9,4 +9,4 @@\n a\n b\n c\n-d\n+e\n", True),
    ],
)
def test_hunks_have_three_lines_of_context(bench: Workbench, hunk: bytes, is_wide: bool) -> None:
    start = bench.raw.index(b"@@")
    bench.replace(bench.raw[start:], hunk)
    assert [rule for _, _, rule in bench.rules()] == ["form-hunk"] * is_wide


def test_problems_of_the_series_are_part_of_it(bench: Workbench) -> None:
    (bench.folder / "stray").touch()
    with (bench.folder / "series").open("a") as file:
        file.write("0009-none.patch\n0001-x.patch -p0\n")
    assert bench.rules() == [
        ("series", 2, "series-missing-patch"),
        ("series", 3, "series-option"),
        ("stray", 0, "series-stray"),
    ]


def test_a_patch_mangled_to_crlf_is_one_problem(bench: Workbench) -> None:
    bench.patch.write_bytes(bench.raw.replace(b"\n", b"\r\n"))
    assert bench.only().rule == "patch-crlf"


def test_a_missing_last_line_end_is_one_problem(bench: Workbench) -> None:
    bench.patch.write_bytes(bench.raw[:-1])
    assert bench.only().rule == "patch-newline"


def test_folders_and_files_that_do_not_belong_are_found(bench: Workbench) -> None:
    patches = bench.project.patches
    (patches / "notes.txt").touch()
    (patches / "megatron-lm" / "old.patch").touch()
    for name in ("megatron-lm/9.9", "unknown/1.0"):
        (patches / name).mkdir(parents=True)
        (patches / name / "series").touch()
    assert bench.rules() == [
        ("9.9", 0, "layout-unknown"),
        ("old.patch", 0, "layout-stray"),
        ("notes.txt", 0, "layout-stray"),
        ("1.0", 0, "layout-unknown"),
    ]


def test_broken_pins_do_not_hide_the_rest(bench: Workbench) -> None:
    bench.project.upstreams_file.write_text("schema = 2\n")
    bench.replace(b"Status: Pending", b"Status: x")
    assert {rule for _, _, rule in bench.rules()} == {"upstreams", "field-form"}


def test_two_patches_on_one_symbol_are_a_note(bench: Workbench) -> None:
    again = bench.raw.replace(b"+    return 1", b"+    return 2").replace(
        b"return None", b"return 1"
    )
    (bench.folder / "0002-again.patch").write_bytes(again)
    with (bench.folder / "series").open("a") as file:
        file.write("0002-again.patch\n")
    report = lint(bench.project)
    assert report.problems == []
    shared = [note for note in report.notes if note.rule == "changes-shared"]
    assert len(shared) == 1
    assert f"code.count is changed by {bench.patch.name} as well" in shared[0].message


def test_a_symbol_that_the_patched_file_lacks_is_found(full_bench: Workbench) -> None:
    full_bench.import_releases()
    full_bench.replace(b"code.count", b"code.cuont")
    found = full_bench.only()
    assert (found.line, found.rule) == (9, "changes-missing")
    assert "code.py defines no cuont after this patch" in found.message


def test_a_symbol_in_another_class_is_suggested(full_bench: Workbench) -> None:
    full_bench.import_releases()
    full_bench.replace(b"code.count", b"code.Counter.count")
    assert full_bench.only().fix == "did you mean count?"


def test_a_patch_that_breaks_the_file_is_found(full_bench: Workbench) -> None:
    full_bench.import_releases()
    full_bench.replace(b"+    return 1", b"+    return (")
    assert {rule for _, _, rule in full_bench.rules()} == {"changes-syntax", "form-bytes"}


def test_a_patch_that_does_not_apply_is_found_at_its_hunk(full_bench: Workbench) -> None:
    full_bench.import_releases()
    full_bench.replace(b"-    return None", b"-    return True")
    found = full_bench.only()
    assert (found.line, found.rule) == (16, "apply")
    assert "a hunk fits nowhere" in found.message


def test_bytes_that_git_would_not_write_on_this_base_are_found(full_bench: Workbench) -> None:
    full_bench.import_releases()
    full_bench.replace(b"@@ -1,2 +1,2 @@", b"@@ -1,2 +1,2 @@ def count():")
    found = full_bench.only()
    assert (found.line, found.rule) == (16, "form-bytes")


def test_everything_is_found_in_one_pass_and_printed(full_bench: Workbench, mxtree: Runner) -> None:
    full_bench.replace(b"Status: Pending", b"Status: x")
    full_bench.replace(b"code.count", b"code count")
    (full_bench.folder / "stray").touch()
    result = mxtree("lint")
    assert result.returncode == 1
    assert result.stderr == ""
    lines = result.stdout.splitlines()
    name = full_bench.patch.relative_to(full_bench.project.root).as_posix()
    assert lines[0].startswith(f"{name}:8: Upstream-Status is 'x' [field-form]; write Pending")
    assert lines[-1] == "2 patches in 2 series: 4 problems"
    document = json.loads(mxtree("lint", "--json").stdout)
    assert document["ok"] is False
    assert document["schema"] == 1
    assert [row["line"] for row in document["problems"]] == [8, 9, 9, 0]
    assert document["problems"][0]["path"] == name


def test_all_well_is_exit_status_0(full_bench: Workbench, mxtree: Runner) -> None:
    result = mxtree("lint")
    assert result.returncode == 0, result.stdout
    assert result.stdout.splitlines()[-1] == "2 patches in 2 series: all well"
    assert json.loads(mxtree("lint", "--json").stdout)["ok"] is True
