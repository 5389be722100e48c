# SPDX-License-Identifier: Apache-2.0
"""The distributions of a tree: what each is called, which files it has, what it says of itself."""

from __future__ import annotations

import fnmatch
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import tomllib

from mxtree.environment import metadata, static
from mxtree.errors import ExitCode, FatalError
from mxtree.tree.files import walk

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path


@dataclass(frozen=True)
class Distribution:
    """One distribution: ``root`` goes on sys.path, ``module`` is what it is imported as.

    ``metadata`` is upstream's, with upstream's ``version``. ``files`` are what its wheel holds,
    relative to ``root``; ``info`` what its .dist-info folder holds besides the metadata.
    """

    name: str
    module: str
    root: Path
    version: str
    metadata: bytes
    files: tuple[str, ...]
    info: Mapping[str, bytes] = field(default_factory=dict)

    @property
    def requires_python(self) -> str:
        """Return the specifier of Python versions, empty when any will do."""
        return str(metadata.parse(self.metadata).requires_python or "")


def of_tree(tree: Path) -> tuple[Distribution, ...]:
    """Return megatron-core, transformer-engine and mxflux as they are in ``tree``.

    Nothing of the tree is executed. Raises `FatalError` when a part is missing or does not say
    statically what it is.
    """
    return (
        _megatron_core(_part(tree, "megatron-lm", "megatron/core/__init__.py")),
        _transformer_engine(_part(tree, "transformer-engine", "transformer_engine/__init__.py")),
        _mxflux(_part(tree, "overlay", "mxflux/__init__.py")),
    )


def _part(tree: Path, name: str, witness: str) -> Path:
    root = tree / name
    if not (root / witness).is_file():
        raise FatalError(
            f"{root} has no {witness}",
            hint=f"mxtree verify {tree} names what is missing; mxtree build --out {tree} makes it",
            code=ExitCode.CHECK_FAILED,
        )
    return root.resolve()


def _megatron_core(root: Path) -> Distribution:
    pyproject = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))
    packages = pyproject["tool"]["setuptools"]["packages"]["find"]["include"]
    files = _in_packages(root, packages)
    if (root / "PKG-INFO").is_file():
        # A patch can only change what both sources of the release have, and git has no PKG-INFO.
        requires = pyproject["project"].get("requires-python", "")
        text = metadata.with_header((root / "PKG-INFO").read_bytes(), "Requires-Python", requires)
    else:
        text = metadata.from_pyproject(root, _megatron_version(root))
        files = [*_python_only(files), *_manifest_in(root)]
    return _distribution("megatron-core", "megatron.core", root, text, files, "megatron")


def _megatron_version(root: Path) -> str:
    path = root / "megatron" / "core" / "package_info.py"
    found = static.assignments(path)
    try:
        return "{MAJOR}.{MINOR}.{PATCH}{PRE_RELEASE}".format(**found)
    except KeyError as error:
        raise metadata.no_metadata(path, f"no constant {error}") from error


def _manifest_in(root: Path) -> list[str]:
    """Return the files that MANIFEST.in names one by one."""
    path = root / "MANIFEST.in"
    lines = path.read_text("utf-8").splitlines() if path.is_file() else []
    named = [word for line in lines if line.startswith("include ") for word in line.split()[1:]]
    return [name for name in named if (root / name).is_file() and not name.endswith(".py")]


def _transformer_engine(root: Path) -> Distribution:
    files = _in_packages(root, ["transformer_engine", "transformer_engine.*"])
    info: dict[str, bytes] = {}
    folder = next(root.glob("transformer_engine-*.dist-info"), None)
    if folder is not None:
        text = (folder / "METADATA").read_bytes()
        licenses = [path for path in (folder / "licenses").rglob("*") if path.is_file()]
        info = {path.relative_to(folder).as_posix(): path.read_bytes() for path in licenses}
    else:
        text = _transformer_engine_metadata(root)
        files = list(_python_only(files))
    name = "transformer-engine"
    return _distribution(name, "transformer_engine", root, text, files, "transformer_engine", info)


def _transformer_engine_metadata(root: Path) -> bytes:
    """Return what a source build declares: its setup.py cannot run without torch and a compiler."""
    setup, utils = root / "setup.py", root / "build_tools" / "utils.py"
    try:
        arguments = static.call_arguments(setup, "setuptools.setup")
        project = {
            "name": arguments["name"],
            "version": (root / "build_tools" / "VERSION.txt").read_text("utf-8").strip(),
            "description": arguments["description"],
            "dependencies": static.assignments(setup)["install_reqs"],
        }
        oldest = static.returned(utils, "min_python_version")
    except (OSError, KeyError, SyntaxError) as error:
        raise metadata.no_metadata(root, f"{type(error).__name__} {error}") from error
    if oldest:
        project["requires-python"] = f">={'.'.join(map(str, oldest))}"
    return metadata.from_project(project, root)


def _mxflux(root: Path) -> Distribution:
    version = static.assignments(root / "mxflux" / "__init__.py").get("__version__")
    if version is None:
        raise metadata.no_metadata(root / "mxflux" / "__init__.py", "no constant __version__")
    text = metadata.from_pyproject(root, version)
    files = _in_packages(root, ["mxflux", "mxflux.*"])
    return _distribution("mxflux", "mxflux", root, text, files, "mxflux")


def _distribution(
    name: str,
    module: str,
    root: Path,
    text: bytes,
    files: Iterable[str],
    top_level: str,
    info: Mapping[str, bytes] | None = None,
) -> Distribution:
    version = str(metadata.parse(text).version)
    extra = {"top_level.txt": f"{top_level}\n".encode(), **(info or {})}
    return Distribution(name, module, root, version, text, tuple(sorted(set(files))), extra)


def _in_packages(root: Path, patterns: Iterable[str]) -> list[str]:
    """Return the files of the packages that ``patterns`` select, as setuptools reads them."""
    tops = {pattern.split(".", 1)[0] for pattern in patterns}
    found = (f"{top}/{path}" for top in tops if (root / top).is_dir() for path in walk(root / top))
    return [path for path in found if _matches(path, patterns)]


def _matches(path: str, patterns: Iterable[str]) -> bool:
    package = path.rpartition("/")[0].replace("/", ".")
    return any(fnmatch.fnmatchcase(package, pattern) for pattern in patterns)


def _python_only(files: Iterable[str]) -> Iterator[str]:
    """Yield the files that a wheel of a git checkout has: C++, CUDA and images stay behind."""
    return (path for path in files if path.endswith((".py", ".pyi", "/py.typed", "/VERSION.txt")))
