# SPDX-License-Identifier: Apache-2.0
"""Megatron imports where there is no Triton, and on Python before 3.12."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from pathlib import Path

import megatron.core
import pytest
import tomllib

STASH = "megatron.core.transformer.moe.paged_stash"
NO_TE = "import sys; sys.modules.update(transformer_engine=None)\n"
NO_TRITON = NO_TE + "sys.modules.update(triton=None)\n"
# What Python 3.11 says to Megatron; other packages go by sys.version_info and find what they want.
PYTHON_3_11 = (
    NO_TE
    + """
import typing
override = vars(typing).pop("override", None)
def lacking(name):
    importer = sys._getframe(1).f_globals.get("__name__", "")
    if name == "override" and override and not importer.startswith("megatron."):
        return override
    raise AttributeError(f"module 'typing' has no attribute {name!r}")
typing.__getattr__ = lacking
"""
)

NEEDS_TRITON = pytest.mark.upstream("megatron-lm>=0.18", reason="no paged stash before")
STARTS_WITHOUT = pytest.mark.upstream(
    "megatron-lm>=0.18", reason="stock imports there before", control_only=True
)


def failure(code: str) -> str:
    """How ``code`` fails in a process of its own: the last line of its output, "" if it works."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
        check=False,
    )
    return done.stdout.strip().rpartition("\n")[2] if done.returncode else ""


@STARTS_WITHOUT
@pytest.mark.control("import of triton halted")
def test_core_imports_without_triton() -> None:
    """All of it, with the schedules that import the MoE paged stash."""
    assert failure(NO_TRITON + "import megatron.core.pipeline_parallel.schedules") == ""


@NEEDS_TRITON
@pytest.mark.control("import of triton halted")
@pytest.mark.parametrize("kernel", ["paged_stash_copy_kernel", "paged_stash_pop_kernel"])
def test_kernel_without_triton_says_so(kernel: str) -> None:
    """A launch is an error that names the kernel and what it lacks."""
    launch = f"import {STASH} as stash\nnames = vars(stash)\n"
    launch += f"(names.get('{kernel}') or names['_{kernel}'])[(1,)](None)"
    needs = f"{kernel} needs Triton: python -c 'import triton' says why not."
    assert failure(NO_TRITON + launch).removeprefix("ImportError: ").lstrip("_") == needs


@NEEDS_TRITON
def test_kernels_are_tritons_where_it_is() -> None:
    """The stand-in is for its absence alone."""
    jit = pytest.importorskip("triton.runtime.jit", reason="Triton is not installed")
    stash = importlib.import_module(STASH)
    kernels = [value for name, value in vars(stash).items() if name.endswith("_kernel")]
    assert len(kernels) == 2
    assert all(isinstance(kernel, jit.JITFunction) for kernel in kernels)


@pytest.mark.upstream("megatron-lm>=0.18", reason="no builders of models in training before")
@pytest.mark.control("cannot import name 'override' from 'typing'")
def test_training_imports_before_python_3_12() -> None:
    """typing.override came with 3.12; every builder of models imports without it."""
    code = "import importlib, pkgutil, megatron.training.training, megatron.training.models as m\n"
    code += "for module in pkgutil.iter_modules(m.__path__, m.__name__ + '.'):\n"
    code += "    importlib.import_module(module.name)"
    assert failure(PYTHON_3_11 + code) == ""


@pytest.mark.upstream("megatron-lm>=0.17", reason="stock says so before", control_only=True)
@pytest.mark.control("'>=3.12' == '>=3.10'")
def test_python_before_3_12_may_install() -> None:
    """What the metadata of a wheel, and so pip, go by."""
    pyproject = Path(megatron.core.__file__).parents[2] / "pyproject.toml"
    project = tomllib.loads(pyproject.read_text(encoding="utf-8"))["project"]
    assert project["requires-python"] == ">=3.10"
