# SPDX-License-Identifier: Apache-2.0
"""TransformerEngine's compiled parts: separate packages, which the tree does not bring along."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from mxtree.environment import start
from mxtree.errors import ExitCode, FatalError

if TYPE_CHECKING:
    from mxtree.environment.interpreter import Interpreter

# NVIDIA's are transformer-engine-cu12, -cu13 and -torch; builds for other machines add to them.
_PREFIX = "transformer-engine-"

# The core packages whose version TransformerEngine compares with its own when it is imported.
_COMPARED = ("transformer-engine-cu12", "transformer-engine-cu13")

# Loads the file alone: importing the package would load the C++ library before the question.
_CHECK = f"""{start.NOT_HERE}
import importlib.util
spec = importlib.util.spec_from_file_location("checked", sys.argv[1])
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
module.sanity_checks_for_pypi_installation()
"""


def present(target: Interpreter) -> list[str]:
    """Return the compiled parts: packages with their version, or libraries that no package owns."""
    packages = [
        f"{found.name} {found.version}"
        for name, found in sorted(target.distributions.items())
        if name.startswith(_PREFIX)
    ]
    return packages or [str(path) for path in _libraries(target.purelib)]


def _libraries(site: Path) -> list[Path]:
    """Return the libraries of a source build, in the places where TransformerEngine looks."""
    folders = (site, site / "transformer_engine", site / "transformer_engine" / "wheel_lib")
    return sorted(path for folder in folders for path in folder.glob("*transformer_engine*.so"))


def check_versions(target: Interpreter) -> None:
    """Run TransformerEngine's own comparison of versions, which it makes when it is imported.

    Raises `FatalError` when it refuses: its Python part and its compiled core have to have equal
    versions, and upstream compares the local part too.
    """
    location = target.modules.get("transformer_engine")
    if location is None or not any(name in target.distributions for name in _COMPARED):
        return
    file = Path(location).parent / "common" / "__init__.py"
    env = {**start.environment(), "NVTE_PROJECT_BUILDING": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    env.pop("NVTE_RELEASE_BUILD", None)
    process = subprocess.run(
        [target.python, "-c", _CHECK, file], env=env, capture_output=True, text=True, check=False
    )
    if process.returncode:
        raise FatalError(
            "TransformerEngine's own check refuses the versions that are installed",
            details=process.stderr.strip().splitlines()[-1:],
            hint="install the compiled parts of the tree's version; when only the local part "
            "(+mxtree...) differs: mxtree install --public-version",
            code=ExitCode.CHECK_FAILED,
        )
