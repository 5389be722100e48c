# SPDX-License-Identifier: Apache-2.0
"""Print what torch says of itself and of the GPUs, as JSON; run by path in an environment."""

from __future__ import annotations

import sys

if not getattr(sys.flags, "safe_path", False):
    del sys.path[0]  # this folder; what remains is what a program in this environment sees

import json


def main() -> None:
    """Print the facts, or why torch cannot be imported."""
    try:
        import torch  # type: ignore[import-not-found, unused-ignore]
    except (ImportError, OSError, RuntimeError) as error:
        json.dump({"error": f"{type(error).__name__}: {error}"}, sys.stdout)
        return
    gpus = []
    for index in range(torch.cuda.device_count() if torch.cuda.is_available() else 0):
        properties = torch.cuda.get_device_properties(index)
        if torch.version.hip:
            arch = properties.gcnArchName.partition(":")[0]
        else:
            arch = f"sm_{properties.major}{properties.minor}"
        gpus.append({"name": properties.name, "arch": arch})
    facts = {"version": torch.__version__, "cuda": torch.version.cuda, "hip": torch.version.hip}
    json.dump(facts | {"gpus": gpus}, sys.stdout)


main()
