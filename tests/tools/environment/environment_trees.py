# SPDX-License-Identifier: Apache-2.0
"""Make small trees that verify: git work trees and a manifest, in the shape of the real ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mxtree.git import git, git_text
from mxtree.tree.files import digest, scan
from mxtree.tree.manifest import FileRecord, FolderRecord, Manifest, UpstreamRecord
from mxtree.tree.verify import verify

if TYPE_CHECKING:
    from pathlib import Path

MEGATRON_PYPROJECT = """\
[build-system]
requires = ["setuptools"]

[tool.setuptools.packages.find]
include = ["megatron.core", "megatron.core.*", "megatron.training", "megatron.training.*"]

[tool.setuptools.dynamic]
version = { attr = "megatron.core.package_info.__version__" }
readme = { file = "README.md", content-type = "text/markdown" }

[project]
name = "megatron-core"
dynamic = ["version", "readme"]
description = "A library"
requires-python = ">=3.10"
license = { text = "Apache 2.0" }
dependencies = ["torch>=2.6.0", "numpy"]

[project.optional-dependencies]
dev = ["tqdm; sys_platform != 'darwin'"]
"""

MEGATRON_PKG_INFO = """\
Metadata-Version: 2.4
Name: megatron-core
Version: 0.18.2
Summary: A library
Requires-Python: >=3.12
Requires-Dist: torch>=2.6.0
Requires-Dist: numpy
Provides-Extra: dev
Requires-Dist: tqdm; sys_platform != "darwin" and extra == "dev"

Version: this line of the readme is no header.
"""

MEGATRON = {
    "README.md": "# Megatron\n",
    "MANIFEST.in": "include megatron/core/requirements.txt\ninclude megatron/core/gone.md\n",
    "pyproject.toml": MEGATRON_PYPROJECT,
    "megatron/core/__init__.py": "NAME = 'core'\n",
    "megatron/core/package_info.py": "MAJOR = 0\nMINOR = 18\nPATCH = 2\nPRE_RELEASE = ''\n",
    "megatron/core/datasets/helpers.cpp": "int main() {}\n",
    "megatron/core/datasets/__init__.py": "",
    "megatron/core/requirements.txt": "torch\n",
    "megatron/training/__init__.py": "",
    "megatron/legacy/__init__.py": "raise RuntimeError('not part of the distribution')\n",
}

TE_METADATA = """\
Metadata-Version: 2.4
Name: transformer_engine
Version: 2.18.0
Summary: Transformer acceleration library
Requires-Python: >=3.10.0
License-File: LICENSE
Provides-Extra: pytorch
Requires-Dist: transformer_engine_torch==2.18.0; extra == "pytorch"
"""

# The comparison of upstream's transformer_engine/common/__init__.py, in upstream's terms.
TE_COMMON = """\
from importlib.metadata import version

def sanity_checks_for_pypi_installation():
    found, core = version("transformer-engine"), version("transformer-engine-cu13")
    assert found == core, f"Found transformer-engine v{found} and core v{core}."
"""

TE = {
    "transformer_engine/__init__.py": "raise RuntimeError('finding it must not run it')\n",
    "transformer_engine/common/__init__.py": TE_COMMON,
    "transformer_engine/common/triton/kernel.py": "",
}

TE_INFO = {
    "transformer_engine-2.18.0.dist-info/METADATA": TE_METADATA,
    "transformer_engine-2.18.0.dist-info/licenses/LICENSE": "Apache\n",
}

TE_SETUP = """\
import torch
from build_tools.te_version import te_version

def setup_requirements():
    install_reqs: List[str] = ["pydantic", "packaging"]

setuptools.setup(
    name="transformer_engine",
    version=te_version(),
    description="Transformer acceleration library",
)
"""

TE_GIT = {
    "setup.py": TE_SETUP,
    "build_tools/VERSION.txt": "2.18.0\n",
    "build_tools/utils.py": "def min_python_version():\n    return (3, 10, 0)\n",
    "transformer_engine/common/gemm/gemm.cu": "// CUDA\n",
}

OVERLAY = {
    "pyproject.toml": '[project]\nname = "mxflux"\ndynamic = ["version"]\n'
    'description = "Flux"\nrequires-python = ">=3.10"\nlicense = "Apache-2.0"\n',
    "mxflux/__init__.py": '__version__ = "0.1.0"\n',
    "mxflux/mx/formats.py": "",
}


def write(root: Path, files: dict[str, str]) -> None:
    """Write ``files``, by relative path, below ``root``."""
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text, encoding="utf-8")


def make_tree(tree: Path, *, from_git: bool = False, extra: dict[str, str] | None = None) -> Path:
    """Make a tree at ``tree`` and return it.

    ``from_git`` leaves out what only releases of the index carry (PKG-INFO, .dist-info) and adds
    what only the public repositories have; ``extra`` are further files, relative to the tree.
    """
    index_only = {"PKG-INFO": MEGATRON_PKG_INFO}
    write(tree / "megatron-lm", MEGATRON if from_git else MEGATRON | index_only)
    write(tree / "transformer-engine", TE | (TE_GIT if from_git else TE_INFO))
    write(tree / "overlay", OVERLAY)
    write(tree / "recipes", {"tiny.yaml": "seed: 1\n"})
    (tree / "megatron-lm" / "megatron" / "core" / "package_info.py").chmod(0o755)
    write(tree, extra or {})
    upstreams = {
        "megatron-lm": _commit(tree / "megatron-lm", "0.18.2", "core_v0.18.2"),
        "transformer-engine": _commit(tree / "transformer-engine", "2.18.0", "v2.18"),
    }
    manifest = Manifest(
        tool_version="0",
        patched=True,
        digest="",
        inputs="",
        upstreams=upstreams,
        folders={name: _folder(tree / name) for name in ("overlay", "recipes")},
    )
    manifest.model_copy(update={"digest": manifest.compute_digest()}).write(tree)
    assert verify(tree) == []
    return tree


def _commit(root: Path, version: str, tag: str) -> UpstreamRecord:
    dates = {"GIT_AUTHOR_DATE": "1700000000 +0000", "GIT_COMMITTER_DATE": "1700000000 +0000"}
    git("init", "--quiet", root)
    git("add", "--all", cwd=root)
    git("commit", "--quiet", "--message", tag, cwd=root, env=dates)
    commit, tree = (git_text("rev-parse", name, cwd=root) for name in ("HEAD", "HEAD^{tree}"))
    return UpstreamRecord(
        version=version,
        tag=tag,
        source={"kind": "index"},
        base_commit=commit,
        base_tree=tree,
        head_commit=commit,
        head_tree=tree,
        patches=(),
    )


def _folder(root: Path) -> FolderRecord:
    entries = scan(root)
    files = {path: FileRecord(mode=e.mode, sha256=e.sha256) for path, e in entries.items()}
    return FolderRecord(digest=digest(entries), files=files)
