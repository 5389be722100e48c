# SPDX-License-Identifier: Apache-2.0
"""`mxtree new`, `mxtree edit`, `mxtree fold`: shape patches in a tree."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

_Tree = Annotated[Path | None, typer.Option(help="The tree.", show_default="trees/default")]
_Patch = Annotated[str, typer.Argument(help="File name, number or slug; or UPSTREAM/one of them.")]


def register(app: typer.Typer) -> None:
    """Add the three commands."""
    app.command(name="new")(new)
    app.command(name="edit")(edit)
    app.command(name="fold")(fold)


def new(
    upstream: Annotated[str, typer.Argument(help="Upstream whose work tree holds the change.")],
    subject: Annotated[str, typer.Argument(help="First line of the message.")],
    tree: _Tree = None,
) -> None:
    """Commit the changes in a work tree as a new patch, with empty header fields to fill in."""
    from mxtree.edit.rewrite import new_patch
    from mxtree.git import shell_git
    from mxtree.project import find_project

    patch = new_patch(find_project(), _where(tree), upstream, subject)
    print(f"{patch.upstream}/{patch.name} is commit {patch.commit[:12]}")
    git = shell_git(patch.repository)
    print(f"next: {git} commit --amend (fill in the fields), mxtree export")


def edit(patch: _Patch, tree: _Tree = None) -> None:
    """Stop the work tree at a patch, to change or reword it, as `git rebase -i` does."""
    from mxtree.edit.rewrite import edit_patch
    from mxtree.git import shell_git

    found = edit_patch(_where(tree), patch)
    git = shell_git(found.repository)
    print(f"stopped at {found.upstream}/{found.name}")
    print(f"next: change files, {git} commit --all --amend, {git} rebase --continue, mxtree export")
    print(f"back: {git} rebase --abort")


def fold(patch: _Patch, tree: _Tree = None) -> None:
    """Fold the changes in a work tree into a patch and replay the later ones on top."""
    from mxtree.edit.rewrite import fold as fold_into

    found = fold_into(_where(tree), patch)
    print(f"folded into {found.upstream}/{found.name}")
    print("next: mxtree export")


def _where(tree: Path | None) -> Path:
    from mxtree.project import find_project

    return (tree or find_project().default_tree).absolute()
