# SPDX-License-Identifier: Apache-2.0
"""`mxtree container`: the files, read as a builder reads them. No image is built here."""

from __future__ import annotations

import hashlib
import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent / "environment"))

from environment_trees import make_tree

from mxtree.errors import ExitCode, FatalError
from mxtree.launch import container
from mxtree.launch.container import Request
from mxtree.tree.manifest import load_manifest

DIGEST = "sha256:" + "0123456789abcdef" * 4
BASE = f"registry.example:5000/rocm/pytorch:rocm7.0@{DIGEST}"


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tree(tmp_path_factory.mktemp("trees") / "default")


def instructions(path: Path) -> list[tuple[str, str]]:
    lines = [line for line in path.read_text().splitlines() if not line.startswith("#")]
    return [tuple(line.split(" ", 1)) for line in lines]  # type: ignore[misc]


def labels(path: Path) -> dict[str, str]:
    pairs = [shlex.split(rest)[0] for word, rest in instructions(path) if word == "LABEL"]
    return dict(pair.split("=", 1) for pair in pairs)


def test_the_containerfile(tree: Path, tmp_path: Path) -> None:
    written = container.write(Request(tree, BASE, tmp_path / "out"))
    found = instructions(written.containerfile)
    assert found[0] == ("FROM", BASE)
    assert {word for word, _ in found} == {"FROM", "LABEL", "COPY", "RUN"}, "no ENV, no ENTRYPOINT"
    for sources in (shlex.split(rest)[:-1] for word, rest in found if word == "COPY"):
        for source in sources:
            assert (tmp_path / "out" / source).exists(), source
    (pip,) = [shlex.split(rest) for _, rest in found if "pip install" in rest]
    assert {"--no-deps", "--no-index"} <= set(pip)
    wheels = {Path(word).name for word in pip if word.endswith(".whl")}
    assert wheels == {path.name for path in (tmp_path / "out" / "wheels").iterdir()}
    assert len(wheels) == 3
    assert not any("no digest" in note for note in written.notes)


def test_digests_are_labels_and_in_the_lock(tree: Path, tmp_path: Path) -> None:
    written = container.write(Request(tree, BASE, tmp_path / "out"))
    digest = load_manifest(tree).digest
    lock, found = json.loads(written.lock.read_text()), labels(written.containerfile)
    assert lock["format"] == 1
    assert found["io.mxtree.tree-digest"] == lock["tree_digest"] == digest
    assert found["org.opencontainers.image.base.digest"] == lock["base_digest"] == DIGEST
    for wheel in lock["wheels"]:
        data = (tmp_path / "out" / wheel["path"]).read_bytes()
        assert wheel["sha256"] == hashlib.sha256(data).hexdigest()
        assert found[f"io.mxtree.wheel.{wheel['name']}"] == f"sha256:{wheel['sha256']}"
    assert set(lock["upstreams"]) == {"megatron-lm", "transformer-engine"}
    assert str(tmp_path) not in written.lock.read_text() + written.containerfile.read_text()


def test_the_check_inside_the_image_runs(tree: Path, tmp_path: Path) -> None:
    """Run it where the wheels are unpacked, and where they are another tree's."""
    written = container.write(Request(tree, BASE, tmp_path / "out"))
    check = shlex.split(instructions(written.containerfile)[-1][1])
    site = tmp_path / "site"
    for wheel in written.wheels:
        subprocess.run([sys.executable, "-m", "zipfile", "-e", wheel.path, site], check=True)
    command, env = [sys.executable, *check[1:]], {"PYTHONPATH": str(site)}
    assert subprocess.run(command, env=env, check=False).returncode == 0
    note = next(site.glob("mxflux-*.dist-info")) / "mxtree.json"
    note.write_text('{"digest": "another"}')
    wrong = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert wrong.returncode == 1
    assert "'mxflux': 'another'" in wrong.stderr


def test_the_same_input_gives_the_same_bytes(tree: Path, tmp_path: Path) -> None:
    first = container.write(Request(tree, BASE, tmp_path / "a"))
    (tmp_path / "a" / "wheels" / "of_an_earlier-1-py3-none-any.whl").touch()
    before = first.containerfile.read_bytes(), first.lock.read_bytes()
    second = container.write(Request(tree, BASE, tmp_path / "a"))
    assert before == (second.containerfile.read_bytes(), second.lock.read_bytes())
    assert len(list((tmp_path / "a" / "wheels").iterdir())) == 3


def test_dependencies_only_when_asked(tree: Path, tmp_path: Path) -> None:
    request = Request(tree, BASE, tmp_path / "out", with_deps=True, python="/opt/venv/bin/python")
    text = container.write(request).containerfile.read_text()
    assert "/opt/venv/bin/python -m pip list --format=freeze" in text
    listed = (tmp_path / "out" / "requirements.txt").read_text().splitlines()
    assert "pydantic>=2" in listed
    assert not [line for line in listed if re.match(r"(torch|triton)\b", line)]


def test_transformer_engine_can_be_left_to_the_image(tree: Path, tmp_path: Path) -> None:
    without = container.check_names(["transformer-engine"])
    written = container.write(Request(tree, BASE, tmp_path / "out", without=without))
    assert [wheel.name for wheel in written.wheels] == ["megatron-core", "mxflux"]
    assert "transformer_engine-" not in written.containerfile.read_text()
    with pytest.raises(FatalError, match="--without torch"):
        container.check_names(["torch"])


@pytest.mark.parametrize("base", ["rocm/pytorch", "rocm/pytorch:latest"])
def test_a_base_without_digest_is_named(tree: Path, tmp_path: Path, base: str) -> None:
    written = container.write(Request(tree, base, tmp_path / "out"))
    assert f"--base {base} has no digest" in written.notes[0]
    assert json.loads(written.lock.read_text())["base_digest"] is None


@pytest.mark.parametrize("base", ["", "Rocm/PyTorch", "a b", "a\nRUN x", "a@sha256:12", "a:b:c"])
def test_what_is_no_image(tree: Path, tmp_path: Path, base: str) -> None:
    with pytest.raises(FatalError, match="is not the name of an image"):
        container.write(Request(tree, base, tmp_path / "out"))


def test_a_changed_tree_is_refused(tmp_path: Path) -> None:
    tree = make_tree(tmp_path / "default")
    (tree / "overlay" / "mxflux" / "more.py").touch()
    with pytest.raises(FatalError, match="differs from its manifest") as caught:
        container.write(Request(tree, BASE, tmp_path / "out"))
    assert caught.value.code == ExitCode.CHECK_FAILED
    container.write(Request(tree, BASE, tmp_path / "out", allow_modified=True))
