# SPDX-License-Identifier: Apache-2.0
"""Collect a compiled TransformerEngine for a GPU machine without network: 36 MB in one folder.

    python benchmarks/collect_te.py --tree trees/default --out .te        # then device_mx.sh there

The core library of the wheel holds code for eight GPU architectures, 658 MB in 2.18.0. All but one
are zeroed, which compresses away; the loader never looks at them. What needs building, the torch
extension, travels as its sdist. Needs pip, git, xz, readelf and the package pypi-simple.
"""

from __future__ import annotations

import argparse
import lzma
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

#: What TE's Python imports and an image with torch does not bring; torchao is a benchmark's peer.
WHEELS = ("pydantic", "pydantic-core", "annotated-types", "typing-inspection", "nvdlfw-inspect")
WHEELS += ("torchao==0.18.0",)
PLATFORMS = ("manylinux_2_28_x86_64", "manylinux_2_24_x86_64", "manylinux2014_x86_64")
CORE = "transformer_engine/wheel_lib/libtransformer_engine.so"
FATBIN_MAGIC = 0xBA55ED50


def run(*command: str | Path, cwd: Path | None = None) -> str:
    """Standard output of a command that must succeed."""
    done = subprocess.run(command, cwd=cwd, check=True, stdout=subprocess.PIPE, text=True)
    return done.stdout


def download(out: Path, *options: str) -> None:
    """Wheels by pip, from the index it is configured with."""
    run(sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", out, *options)


def section(library: Path, name: str) -> tuple[int, int]:
    """Offset and size in the file of an ELF section."""
    text = run("readelf", "-SW", library)
    found = re.search(rf" {re.escape(name)} +\S+ +\S+ +([0-9a-f]+) +([0-9a-f]+)", text)
    if found is None:
        raise ValueError(f"{library}: no section {name}")
    return int(found[1], 16), int(found[2], 16)


def keep_architecture(library: Path, arch: int) -> bytes:
    """The library's bytes with the GPU code of every other architecture zeroed.

    Raises ValueError where the section holds no code for `arch`.
    """
    data = bytearray(library.read_bytes())
    offset, size = section(library, ".nv_fatbin")
    at, end, kept = offset, offset + size, 0
    while at < end - 16:
        magic, _version, header, length = struct.unpack_from("<IHHQ", data, at)
        if magic != FATBIN_MAGIC:
            at += 8
            continue
        entry, last = at + header, at + header + length
        while entry < last:
            _kind, _flags, head, code = struct.unpack_from("<HHIQ", data, entry)
            (of,) = struct.unpack_from("<I", data, entry + 28)
            if of == arch:
                kept += code
            else:
                data[entry + head : entry + head + code] = bytes(code)
            entry += head + code
        at = last
    if not kept:
        raise ValueError(f"{library}: no GPU code for sm_{arch}")
    return bytes(data)


def collect_core(version: str, arch: int, out: Path) -> None:
    """core.so.xz and the metadata of the core package."""
    with tempfile.TemporaryDirectory() as folder:
        download(Path(folder), f"transformer_engine_cu13=={version}")
        (wheel,) = Path(folder).glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(folder)
        pruned = keep_architecture(Path(folder, CORE), arch)
        (out / "core.so.xz").write_bytes(lzma.compress(pruned, preset=3))
        for metadata in Path(folder).glob("*.dist-info"):
            shutil.copytree(metadata, out / metadata.name, dirs_exist_ok=True)


def collect_extension(version: str, out: Path) -> None:
    """te_torch.tgz, the sdist of the extension: pip cannot take it where torch has no CUDA."""
    from pypi_simple import PyPISimple

    with PyPISimple() as index:
        page = index.get_project_page("transformer-engine-torch")
        sdist = [p for p in page.packages if p.version == version and p.package_type == "sdist"]
        index.download_package(sdist[0], path=out / "te_torch.tgz")


def collect_tree(tree: Path, out: Path) -> None:
    """patched-te.tgz and megatron.tgz: what the commits of the patched tree hold."""
    for name, folder in (("patched-te", "transformer-engine"), ("megatron", "megatron-lm")):
        target = (out / f"{name}.tgz").resolve()
        run("git", "archive", "--format=tgz", "-o", target, "HEAD", cwd=tree / folder)


def main() -> int:
    """Fill the folder; exit 0."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--version", default="2.18.0", help="of TransformerEngine, as in the tree")
    parser.add_argument("--arch", type=int, default=90, help="compute capability of the GPU")
    parser.add_argument("--tree", type=Path, default=Path("trees/default"))
    parser.add_argument("--out", type=Path, default=Path(".te"))
    parser.add_argument("--tree-only", action="store_true", help="the folder has the rest already")
    options = parser.parse_args()
    out: Path = options.out
    (out / "whl").mkdir(parents=True, exist_ok=True)
    collect_tree(options.tree, out)
    if not options.tree_only:
        platforms = [f"--platform={name}" for name in PLATFORMS]
        python = ("--only-binary=:all:", "--python-version=3.12", "--implementation=cp")
        download(out / "whl", *python, *platforms, *WHEELS)
        download(out, f"transformer_engine=={options.version}")
        collect_extension(options.version, out)
        collect_core(options.version, options.arch, out)
    size = sum(path.stat().st_size for path in out.rglob("*") if path.is_file())
    print(f"{out}: {size / 1e6:.0f} MB")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
