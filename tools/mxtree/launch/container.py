# SPDX-License-Identifier: Apache-2.0
"""`mxtree container`: a Containerfile with the tree's wheels on a base image, and a lock of it."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from mxtree import __version__
from mxtree.environment import foreign, requirements
from mxtree.environment.wheel import BuiltWheel, build_wheels
from mxtree.errors import FatalError
from mxtree.tree.manifest import load_manifest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from mxtree.tree.manifest import Manifest

CONTAINERFILE, LOCK, WHEELS, REQUIREMENTS = (
    "Containerfile",
    "container.lock.json",
    "wheels",
    "requirements.txt",
)
FORMAT = 1
_INSIDE = "/opt/mxtree"
_LABEL = "io.mxtree"
_IMAGE = re.compile(
    r"(?:[a-z0-9.-]+:\d+/)?[a-z0-9]+(?:[._/-]+[a-z0-9]+)*"
    r"(?::[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?"
    r"(?:@(?P<digest>sha256:[0-9a-f]{64}))?"
)
# Says nothing when the note of every wheel in the image names the tree.
_CHECK = (
    "import importlib.metadata as m, json, sys; "
    'found = {n: json.loads(m.distribution(n).read_text("mxtree.json"))["digest"] for n in NAMES}; '
    "sys.exit(str(found) if set(found.values()) != {DIGEST} else 0)"
)


@dataclass(frozen=True)
class Request:
    """What to put on which image. ``python`` is the interpreter inside the image."""

    tree: Path
    base: str
    out: Path
    python: str = "python3"
    with_deps: bool = False
    without: frozenset[str] = frozenset()
    allow_modified: bool = False


@dataclass(frozen=True)
class Written:
    """What was written, and what the reader should know."""

    containerfile: Path
    lock: Path
    wheels: tuple[BuiltWheel, ...]
    notes: tuple[str, ...]


def write(request: Request) -> Written:
    """Write Containerfile, lock and wheels into ``request.out``.

    The same tree and options give the same bytes. Raises `FatalError` when the base is no image
    name, or the tree differs from its manifest and that is not allowed.
    """
    digest = _digest_of(request.base)
    manifest = load_manifest(request.tree)
    folder = request.out / WHEELS
    built = build_wheels(request.tree, folder, allow_modified=request.allow_modified)
    wheels = tuple(wheel for wheel in built if wheel.name not in request.without)
    wanted = {wheel.path.name for wheel in wheels}
    for path in folder.glob("*.whl"):  # also those of an earlier tree
        if path.name not in wanted:
            path.unlink()
    (request.out / REQUIREMENTS).write_text(_requirements(), encoding="utf-8")
    lock = json.dumps(_lock(request, manifest, digest, wheels), indent=2, sort_keys=True)
    (request.out / LOCK).write_text(lock + "\n", encoding="utf-8")
    text = "\n".join(_lines(request, manifest, wheels)) + "\n"
    (request.out / CONTAINERFILE).write_text(text, encoding="utf-8")
    paths = (request.out / CONTAINERFILE, request.out / LOCK)
    return Written(*paths, wheels, tuple(_notes(request, digest)))


def _digest_of(base: str) -> str | None:
    match = _IMAGE.fullmatch(base)
    if match is None:
        raise FatalError(
            f"--base {base!r} is not the name of an image",
            hint="as registry/name:tag, better registry/name:tag@sha256:<64 hexadecimal digits>",
        )
    return match["digest"]


def _requirements() -> str:
    """Return what the tree needs besides torch and triton, which are the image's."""
    wanted = [str(r) for r in requirements.read() if r.name not in requirements.MACHINE_OWNED]
    return "".join(f"{requirement}\n" for requirement in wanted)


def _lock(
    request: Request, manifest: Manifest, digest: str | None, wheels: tuple[BuiltWheel, ...]
) -> dict[str, Any]:
    overlay = manifest.folders.get("overlay")
    return {
        "format": FORMAT,
        "mxtree_version": __version__,
        "base": request.base,
        "base_digest": digest,
        "tree_digest": manifest.digest,
        "overlay_digest": overlay.digest if overlay else None,
        "upstreams": {
            name: {
                "version": upstream.version,
                "commit": upstream.head_commit,
                "patches": {patch.id: patch.digest for patch in upstream.patches},
            }
            for name, upstream in manifest.upstreams.items()
        },
        "wheels": [{**asdict(wheel), "path": f"{WHEELS}/{wheel.path.name}"} for wheel in wheels],
    }


def _labels(request: Request, manifest: Manifest, wheels: tuple[BuiltWheel, ...]) -> dict[str, str]:
    labels = {
        "org.opencontainers.image.base.name": request.base.partition("@")[0],
        f"{_LABEL}.version": __version__,
        f"{_LABEL}.tree-digest": manifest.digest,
    }
    if digest := _digest_of(request.base):
        labels["org.opencontainers.image.base.digest"] = digest
    for name, upstream in manifest.upstreams.items():
        labels[f"{_LABEL}.{name}"] = f"{upstream.version} {upstream.head_commit}"
    for wheel in wheels:
        labels[f"{_LABEL}.wheel.{wheel.name}"] = f"sha256:{wheel.sha256}"
    return labels


def _lines(request: Request, manifest: Manifest, wheels: tuple[BuiltWheel, ...]) -> Iterator[str]:
    python = shlex.quote(request.python)
    files = " ".join(f"{_INSIDE}/{WHEELS}/{wheel.path.name}" for wheel in wheels)
    names = [wheel.name for wheel in wheels]
    yield "# SPDX-License-Identifier: Apache-2.0"
    yield f"# Written by mxtree {__version__}; {LOCK} says what is in it."
    yield f"FROM {request.base}"
    for key, value in _labels(request, manifest, wheels).items():
        yield f'LABEL {key}="{value}"'
    yield f"COPY {LOCK} {REQUIREMENTS} {_INSIDE}/"
    yield f"COPY {WHEELS}/ {_INSIDE}/{WHEELS}/"
    if request.with_deps:
        yield "# What the image has stays at its version: torch and triton are the machine's."
        yield (
            f"RUN {python} -m pip list --format=freeze > {_INSIDE}/base.txt && {python} -m pip "
            f"install --no-cache-dir -c {_INSIDE}/base.txt -r {_INSIDE}/{REQUIREMENTS}"
        )
    yield "# Without dependencies and index: nothing of the base image is replaced but these."
    yield f"RUN {python} -m pip install --no-deps --no-index --no-cache-dir {files}"
    yield "# The build fails when something else would be found first."
    check = _CHECK.replace("NAMES", json.dumps(names)).replace("DIGEST", f'"{manifest.digest}"')
    yield f"RUN {python} -c {shlex.quote(check)}"
    yield "# No ENV: the launcher sets NVTE_*, AITER_* and the rest from the recipe of each run."


def _notes(request: Request, digest: str | None) -> Iterator[str]:
    if digest is None:
        yield (f"--base {request.base} has no digest: what a tag names can change; add @sha256:...")
    if not request.with_deps:
        yield f"the image must have what {REQUIREMENTS} lists, or use --with-deps"
    if "transformer-engine" not in request.without:
        yield (
            "the wheel of TransformerEngine is pure Python: its compiled parts must be in the "
            "image as packages of their own. ROCm's TransformerEngine is one package: build it "
            "from the patched source and leave this one out (--without transformer-engine)"
        )


def check_names(names: list[str]) -> frozenset[str]:
    """Return distributions to leave out; raises `FatalError` for what a tree does not have."""
    return foreign.check_names(names, "--without")
