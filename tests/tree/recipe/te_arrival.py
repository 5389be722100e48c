# SPDX-License-Identifier: Apache-2.0
"""Keys that Megatron takes only where Transformer Engine is, on its Python and a stub of the rest.

A process of its own: Megatron decides at import whether Transformer Engine exists.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

TE = {"device": "h200", "model.transformer_impl": "transformer_engine"}
MXFP4 = {
    **TE,
    "precision.fp4": "e2m1",
    "precision.fp4_recipe": "mxfp4",
    "precision.gemm_backend": "emulated",
}
STATE = {**TE, "optimizer.use_precision_aware_optimizer": True}
VALUES: dict[str, tuple[Any, dict[str, Any]]] = {
    "model.apply_rope_fusion": (True, TE),
    "precision.fp4": ("e2m1", MXFP4),
    "precision.fp4_recipe": ("mxfp4", MXFP4),
    "precision.fp4_use_native_te_autocast": (True, MXFP4),
    "optimizer.use_precision_aware_optimizer": (True, STATE),
    "optimizer.main_params_dtype": ("fp16", STATE),
    "optimizer.main_grads_dtype": ("bf16", {**STATE, "precision.grad_reduce_in_bf16": True}),
    "optimizer.exp_avg_dtype": ("bf16", STATE),
    "optimizer.exp_avg_sq_dtype": ("fp8", STATE),
}
"""key: (a value that is not the default, what it needs around it)"""


def run(timeout: float = 180) -> dict[str, Any]:
    """Key -> whether it arrived; "Type: message" where something raised."""
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder, "found.json")
        path = os.pathsep.join(filter(None, sys.path))
        done = subprocess.run(
            [sys.executable, "-m", "te_arrival", str(target)],
            env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": path},
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"exit {done.returncode}:\n{(done.stdout + done.stderr)[-4000:]}")
        found: dict[str, Any] = json.loads(target.read_text("utf-8"))
        return found


def _main(target: str) -> None:
    warnings.simplefilter("ignore")
    import pytest
    from support import origin, te_cuda, te_stub

    te_stub.install()
    te_cuda.gfx950(pytest.MonkeyPatch())
    from small_recipe import arrives, recipe

    def outcome(key: str) -> Any:
        value, around = VALUES[key]
        try:
            return arrives(recipe({**around, key: value}), key)
        except Exception as error:  # noqa: BLE001 - any failure is a result to compare
            return f"{type(error).__name__}: {error}"

    found = {key: outcome(key) for key in VALUES}
    origin.check_imported()
    Path(target).write_text(json.dumps(found), "utf-8")


if __name__ == "__main__":
    _main(sys.argv[1])
