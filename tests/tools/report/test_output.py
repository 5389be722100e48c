# SPDX-License-Identifier: Apache-2.0
"""Where a report goes and in which form; the terminal view; the command itself."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from mxtree.errors import ExitCode, FatalError
from mxtree.git import git, git_text
from mxtree.rebase.model import Outcome
from mxtree.rebase.story import Report
from mxtree.report.output import Format, choose, deliver

if TYPE_CHECKING:
    from mxtree.project import Project

    from .conftest import Kit, Runner


@pytest.mark.parametrize(
    ("given", "name", "expected"),
    [
        (None, None, None),
        (Format.MD, None, Format.MD),
        (None, "a/b.html", Format.HTML),
        (None, "b.HTM", Format.HTML),
        (None, "b.markdown", Format.MD),
        (None, "b.json", Format.JSON),
        (Format.HTML, "b.txt", Format.HTML),
    ],
)
def test_the_name_of_the_file_tells_the_format(
    given: Format | None, name: str | None, expected: Format | None
) -> None:
    assert choose(given, Path(name) if name else None) is expected


def test_a_name_that_tells_nothing_is_refused() -> None:
    with pytest.raises(FatalError, match="does not say in which format") as caught:
        choose(None, Path("out/rebase"))
    assert "--format md|html|json" in (caught.value.hint or "")


def test_json_is_the_model(kit: Kit, capsys: pytest.CaptureFixture[str]) -> None:
    made = kit.report(kit.story())
    deliver(made, Format.JSON, None)
    assert Report.model_validate_json(capsys.readouterr().out) == made


def test_parent_folders_are_made_and_an_old_file_is_replaced(
    kit: Kit, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "a" / "b" / "rebase.html"
    deliver(kit.report(kit.story()), Format.HTML, output)
    with output.open("rb") as reader:
        first = os.fstat(reader.fileno()).st_ino
        deliver(kit.report(kit.story(["Other"], edges=())), Format.HTML, output)
        assert output.stat().st_ino != first
        assert b"Four" in reader.read()
    assert b"Other" in output.read_bytes()
    assert list(output.parent.iterdir()) == [output]
    captured = capsys.readouterr()
    assert captured.out == ""
    assert f"written: {output}" in captured.err


def test_a_place_that_cannot_be_written_is_named(kit: Kit, tmp_path: Path) -> None:
    with pytest.raises(FatalError, match="is a folder"):
        deliver(kit.report(), Format.MD, tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(FatalError, match="cannot be written") as caught:
        deliver(kit.report(), Format.MD, tmp_path / "file" / "x.md")
    assert caught.value.code == ExitCode.COULD_NOT_CHECK


def test_the_terminal_cuts_nothing_and_obeys_no_markup(
    kit: Kit, capsys: pytest.CaptureFixture[str]
) -> None:
    why = "[red]in[/red] " + "a/very/long/path.py, " * 10 + "\x1b[31mend"
    deliver(kit.report(kit.story(why=why)), None, None)
    out = capsys.readouterr().out
    lines = [line for line in out.splitlines() if ".patch" in line]
    assert [line.split()[0] for line in lines] == [f"000{i}-Patch-{i}.patch" for i in range(1, 5)]
    assert all("[red]in[/red] a/very" in line and "<U+001B>[31mend" in line for line in lines)
    for expected in (
        "Forecast of thing 1.0 onto 2.0",
        "from 1.0 (v1.0, index, commit cccccccccccc)",
        "onto 2.0 (v2.0, index, commit cccccccccccc)",
        "0002 builds on 0001",
        "4 patches = 1 untouched + 1 refreshed + 1 merged upstream + 1 conflict",
    ):
        assert expected in out.splitlines()


def test_the_terminal_shows_the_matrix(kit: Kit, capsys: pytest.CaptureFixture[str]) -> None:
    other = kit.story(outcomes=[Outcome.OFFSET], onto="3.0")
    deliver(kit.report(kit.story(), other), None, None)
    out = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["patch", "2.0", "3.0"] in out
    assert ["0003-Patch-3.patch", "merged", "upstream", "offset"] in out


@pytest.fixture
def forecast(project: Project, mxtree: Runner) -> Project:
    """A project with a newer release, and a forecast of it."""
    repository = project.root.parent / "upstream" / "megatron-lm"
    git("checkout", "--quiet", "core_v1.0", cwd=repository)
    (repository / "code.py").write_text("# counts\n\n\ndef count():\n    return None\n")
    env = {"GIT_AUTHOR_DATE": "1700000000 +0000", "GIT_COMMITTER_DATE": "1700000000 +0000"}
    git("commit", "--quiet", "-am", "Comment", cwd=repository, env=env)
    git("tag", "core_v2.0", cwd=repository)
    commit, tree = git_text("rev-parse", "HEAD", "HEAD^{tree}", cwd=repository).split()
    pins = project.upstreams_file
    entry = (
        '[upstream.megatron-lm.release."2.0"]\nfile = "megatron-lm-2.0.tar.gz"\n'
        f'sha256 = "{"1" * 64}"\ntree = "{tree}"\ncommit = "{commit}"\n\n'
    )
    marker = "[upstream.transformer-engine]"
    pins.write_text(pins.read_text().replace(marker, entry + marker))
    source = f"git:{repository}"
    options = ("--onto", "2.0", "--source", source, "--dry-run")
    done = mxtree("rebase", "megatron-lm", *options)
    assert done.returncode == 0, done.stderr
    return project


def test_the_command_reports_a_real_forecast(
    forecast: Project, mxtree: Runner, kit: Kit, tmp_path: Path
) -> None:
    output = tmp_path / "out" / "rebase.html"
    done = mxtree("report", "rebase", "--format", "html", "-o", output)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    page = kit.read(output.read_text("utf-8"))
    (row,) = page.all("table", "patches")[0].all("tbody")[0].all("tr")
    assert [cell.text for cell in row.all("td")] == [
        "0001 Teach megatron-lm to count",
        "refreshed",
        "context lines only",
    ]
    assert "1 patch = 1 refreshed" in page.text
    (diff,) = page.all("pre", "rangediff")
    assert "Teach megatron-lm to count" in diff.text

    text = mxtree("report", "rebase", "--upstream", "megatron-lm")
    assert text.stdout.startswith("Forecast of megatron-lm 1.0 onto 2.0\n")
    markdown = mxtree("report", "rebase", "--format", "md").stdout
    assert markdown.startswith("## Forecast of megatron-lm 1.0 onto 2.0\n")
    model = json.loads(mxtree("report", "rebase", "--format", "json").stdout)
    assert model["stories"][0]["rebase"]["steps"][0]["outcome"] == "refreshed"


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        ((), 2, "no rebase to report on"),
        (("--upstream", "transformer-engine"), 2, "for transformer-engine"),
        (("--upstream", "megatron"), 2, "did you mean megatron-lm"),
        (("--upstream", "*"), 2, "there is no upstream '*'"),
        (("--format", "pdf"), 2, "pdf"),
    ],
)
def test_what_cannot_be_reported_is_an_error(
    mxtree: Runner, options: tuple[str, ...], code: int, message: str
) -> None:
    done = mxtree("report", "rebase", *options)
    assert done.returncode == code
    assert message in done.stderr
    assert "Traceback" not in done.stderr
