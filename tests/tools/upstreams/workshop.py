# SPDX-License-Identifier: Apache-2.0
"""A project folder whose pins a test may change, and the two tiny releases that it pins."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from release_files import MEMBERS, make_sdist, make_wheel

from mxtree.project import Project
from mxtree.upstreams import load_upstreams

if TYPE_CHECKING:
    from pathlib import Path

    from mxtree.upstreams import Upstream

SDIST = make_sdist(MEMBERS)
WHEEL = make_wheel({"round/__init__.py": b"ROUND = True\n", "round/data.bin": bytes(range(256))})


@dataclass
class Workshop:
    """A project folder and the pins in it; change a pin, then `write`."""

    root: Path
    #: By upstream and key, as in the file.
    pins: dict[str, dict[str, str]] = field(default_factory=dict)
    extra: str = ""

    @property
    def project(self) -> Project:
        return Project(self.root)

    def write(self) -> Project:
        blocks = ["schema = 1\n"]
        for name, pin in self.pins.items():
            kind = "wheel" if pin["file"].endswith(".whl") else "sdist"
            blocks.append(
                f'[upstream.{name}]\npackage = "{name}"\npackaging = "{kind}"\n'
                f'default = "1.0"\nrepository = "{pin.get("repository", "/nowhere")}"\n'
                'tag = "v{version}"\n'
            )
            keys = ("file", "sha256", "tree", "commit")
            rows = [f'{key} = "{pin[key]}"\n' for key in keys if key in pin]
            blocks.append(f'[upstream.{name}.release."1.0"]\n' + "".join(rows))
        path = self.project.upstreams_file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(blocks) + self.extra, encoding="utf-8")
        return self.project

    def upstream(self, name: str = "tiny") -> Upstream:
        return load_upstreams(self.write()).get(name)
