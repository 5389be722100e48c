# SPDX-License-Identifier: Apache-2.0
"""Every variant in a process of its own, so that one which crashes costs its own row."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from mxflux.benchmarks.results import Measured, restore

if TYPE_CHECKING:
    import argparse

    from mxflux.benchmarks.variants import Variant


def run_worker(options: argparse.Namespace, variant: Variant, batch: int) -> Measured:
    """One variant at one batch, in a process of its own."""
    arguments = _worker_arguments(options, variant, batch)
    with tempfile.TemporaryDirectory() as folder:
        environment = dict(os.environ)
        if variant.peer and variant.compiled and options.device == "cuda":
            # torch 2.11 faults while it tunes these kernels unless every launch is waited for
            waiting = {**environment, "CUDA_LAUNCH_BLOCKING": "1"}
            _spawn([*arguments, "--fill-cache"], Path(folder, "fill.json"), waiting, options.limit)
        why = _spawn(arguments, Path(folder, "row.json"), environment, options.limit)
        path = Path(folder, "row.json")
        if why or not path.exists():
            return Measured(variant.name, batch, error=why or "no result")
        found = json.loads(path.read_text(encoding="utf-8"))
    return restore(found)


def _worker_arguments(options: argparse.Namespace, variant: Variant, batch: int) -> list[str]:
    kept = ("preset", "blocks", "tokens", "device", "mode", "precision", "gemm_backend", "repeats")
    flags = [
        part
        for name in kept
        for part in (f"--{name.replace('_', '-')}", str(getattr(options, name)))
    ]
    flags += ["--micro-batch", str(batch), "--worker", variant.name]
    return [*flags, "--recompute"] if options.recompute else flags


def _spawn(arguments: list[str], out: Path, environment: dict[str, str], limit: float) -> str:
    """Run a worker; why it failed, or "". Its last lines go to stderr."""
    command = [sys.executable, "-m", "mxflux.benchmarks.step", *arguments, "--out", str(out)]
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=limit, check=False
        )
    except subprocess.TimeoutExpired:
        return f"took longer than {limit:.0f} s"
    if done.returncode == 0:
        return ""
    tail = [line for line in done.stderr.splitlines() if line.strip()][-12:]
    print("\n".join(tail), file=sys.stderr)
    return (tail or [f"exit status {done.returncode}"])[-1][:200]
