# SPDX-License-Identifier: Apache-2.0
"""The packages that a tree needs around it."""

from __future__ import annotations

from importlib import resources

from packaging.requirements import Requirement

#: Packages that belong to the machine: in an existing environment they are never touched.
MACHINE_OWNED = frozenset({"torch", "triton"})

# Where the module is not called as its distribution.
_MODULES = {
    "megatron-energon": "megatron.energon",
    "mlperf-logging": "mlperf_logging",
    "pillow": "PIL",
    "pyyaml": "yaml",
    "ruamel-yaml": "ruamel.yaml",
    "scikit-learn": "sklearn",
}

FILE = resources.files("mxtree.environment") / "requirements.txt"


def read() -> list[Requirement]:
    """Return the requirements in the order of the file."""
    lines = (line.split("#", 1)[0].strip() for line in FILE.read_text("utf-8").splitlines())
    return [Requirement(line) for line in lines if line]


def module(requirement: Requirement) -> str:
    """Return the module whose presence shows that ``requirement`` is there."""
    return _MODULES.get(requirement.name, requirement.name)
