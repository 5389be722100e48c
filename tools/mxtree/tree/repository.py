# SPDX-License-Identifier: Apache-2.0
"""The git work tree of one upstream inside a tree: self-contained, movable, plain git."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

from mxtree.git import git
from mxtree.tree.files import ignore_rules

if TYPE_CHECKING:
    from pathlib import Path

BRANCH = "mxtree"


def create(path: Path, objects_of: Path) -> None:
    """Make an empty repository at ``path`` that has every object of the repository ``objects_of``.

    Objects are hard links (copies across file systems): no path into the cache is recorded, so the
    tree survives a cleared cache and being moved.
    """
    git("init", "--quiet", "--template=", f"--initial-branch={BRANCH}", path)
    # The user's own git works here later; a global autocrlf would show every file as changed.
    git("config", "core.autocrlf", "false", cwd=path)
    ignore_by_products(path)
    add_objects(path, objects_of)


def ignore_by_products(path: Path) -> None:
    """Let git pass over bytecode and the like, besides what the user's own rules say.

    A release's archive has no .gitignore: after the first test `git add --all` would take them.
    """
    exclude = path / ".git" / "info" / "exclude"
    own = exclude.read_text(encoding="utf-8").splitlines() if exclude.exists() else []
    missing = [rule for rule in ignore_rules() if rule not in own]
    if missing:
        exclude.parent.mkdir(exist_ok=True)
        exclude.write_text("\n".join([*own, *missing]) + "\n", encoding="utf-8")


def add_objects(path: Path, objects_of: Path) -> None:
    """Give the repository at ``path`` every object of another one as well."""
    _link_tree(objects_of / "objects", path / ".git" / "objects")
    shallow = objects_of / "shallow"
    if shallow.is_file():
        with (path / ".git" / "shallow").open("ab") as file:
            file.write(shallow.read_bytes())


def check_out(path: Path, *, base: str, tag: str, head: str) -> None:
    """Point the branch at ``head``, the tag at ``base``, and write the files of ``head``."""
    refs = f"create refs/heads/{BRANCH} {head}\ncreate refs/tags/{tag} {base}\n"
    git("update-ref", "--stdin", cwd=path, stdin=refs.encode())
    git("read-tree", "--reset", "-u", head, cwd=path)


def _link_tree(source: Path, target: Path) -> None:
    target.mkdir(parents=True, exist_ok=True)
    with os.scandir(source) as entries:
        for entry in entries:
            if entry.is_dir():
                _link_tree(source / entry.name, target / entry.name)
            elif not entry.name.startswith("tmp_"):
                _link(source / entry.name, target / entry.name)


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except FileExistsError:
        # An object's name is the hash of its content: the one that is there is the same.
        return
    except OSError:
        shutil.copy2(source, target)
