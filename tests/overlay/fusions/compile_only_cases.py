# SPDX-License-Identifier: Apache-2.0
"""Runs in its own process: traced graphs and kept handles on a GPU that is not there."""

from __future__ import annotations

import threading
from collections import Counter
from typing import Any

import torch
from functorch.compile import make_boxed_func
from torch._dynamo.backends.common import aot_autograd

from mxflux.fusions import checks, crosscompile, launch, tables
from mxflux.fusions.gate_residual import gate_residual_ln_modulate
from mxflux.fusions.kernels.reduce import reduce_partials_kernel
from mxflux.fusions.ln_modulate import ln_modulate
from mxflux.fusions.norm_rope import norm_rope
from mxflux.fusions.rope_table import RopeTable

launches: Counter[str] = Counter()


class NoLauncher:
    """Counts launches of kept handles and of plain launches alike."""

    def __init__(self, src: Any, metadata: Any) -> None:
        self.arguments = 0

    def __call__(self, *arguments: Any) -> None:
        launches["all"] += 1
        launches["arguments"] = len(arguments)


class Device(crosscompile._CompileOnly):
    """A device that loads anything and launches nothing."""

    launcher_cls = NoLauncher

    class utils:  # noqa: N801
        @staticmethod
        def load_binary(*_: Any) -> tuple[int, ...]:
            return (1, 1, 0, 0, 1024)

        @staticmethod
        def get_device_properties(_: Any) -> dict[str, int]:
            return {"max_shared_mem": 160 * 1024}


def pretend() -> None:
    """CPU tensors stand for device ones."""
    crosscompile.driver.set_active(Device(crosscompile.TARGETS["gfx950"]))
    checks.runnable = lambda *_: None
    tables.architecture = lambda *_: "gfx950"


def traced_graph() -> None:
    """The traceable ops compile to kernel nodes, both ways, that clone no strided tensor."""
    leaves = {
        "mixed": torch.randn(8, 2, 3, 96, dtype=torch.bfloat16, requires_grad=True),
        "weight": torch.ones(32, dtype=torch.bfloat16, requires_grad=True),
        "x": torch.randn(8, 2, 64, dtype=torch.bfloat16, requires_grad=True),
        "modulation": torch.randn(2, 384, dtype=torch.bfloat16, requires_grad=True),
    }
    table = RopeTable(torch.randn(8, 1, 32))

    def run(mixed: Any, weight: Any, x: Any, modulation: Any) -> Any:
        shift, scale, gate = modulation.chunk(6, -1)[:3]
        a = norm_rope(mixed[..., 32:64], weight, table)
        b = ln_modulate(x, scale, shift)
        h, c = gate_residual_ln_modulate(x, x, gate, scale, shift)
        return a, b, h, c

    def note(module: Any, _: Any) -> Any:
        nodes = [n for n in module.graph.nodes if "triton_kernel_wrapper" in str(n.target)]
        print("kernels", len(nodes))
        for node in nodes:
            mutated = [node.kwargs["kwargs"][name] for name in node.kwargs["tensors_to_clone"]]
            print("written twice" if len(set(mutated)) < len(mutated) else "written once")
            for name in node.kwargs["tensors_to_clone"]:
                value = node.kwargs["kwargs"][name].meta["val"]
                print("cloned", name, "contiguous" if value.is_contiguous() else "strided")
        return make_boxed_func(module.forward)

    compiled = torch.compile(run, backend=aot_autograd(fw_compiler=note), fullgraph=True)
    sum(out.sum() for out in compiled(*leaves.values())).backward()


def kept_handles() -> None:
    """The second aligned launch goes through the handle; misaligned pointers never do."""
    one = launch.Launch(
        reduce_partials_kernel,
        2,
        (4, 64, 2),
        {"OUTPUTS": 1, "BLOCK_P": 4, "BLOCK_C": 32, "FP64": False},
        4,
    )
    partial, out = torch.zeros(1, 4, 64), torch.zeros(64)
    before = launches["all"]
    one(partial, out, out, out)
    print("kept", one.handle is not None, launches["all"] - before)
    plain = launches["arguments"]
    one(partial, out, out, out)
    print("again", launches["all"] - before, launches["arguments"] == plain)
    calls: Counter[str] = Counter()
    stock = launch.Launch._launch
    launch.Launch._launch = lambda self, pointers: (calls.update(["plain"]), stock(self, pointers))[
        1
    ]
    one(torch.zeros(257)[1:].view(1, 4, 64), out, out, out)
    print("misaligned", calls["plain"])
    one.hip = True
    bound = launch.BUFFER_BYTES
    print("small storage keeps", one._keeps_guards([0], (partial,)))
    launch.BUFFER_BYTES = 512
    print("big storage keeps", one._keeps_guards([0], (partial,)))
    launch.BUFFER_BYTES = bound
    launch.Launch._launch = stock


def threads() -> None:
    """Cold launches from two threads at once: no error, one launch each."""
    before = launches["all"]
    cold = launch.Launch(
        reduce_partials_kernel,
        1,
        (8, 32, 1),
        {"OUTPUTS": 1, "BLOCK_P": 8, "BLOCK_C": 32, "FP64": False},
        1,
    )
    partial, out = torch.zeros(1, 8, 32), torch.zeros(32)
    group = [threading.Thread(target=cold, args=(partial, out, out, out)) for _ in range(4)]
    for thread in group:
        thread.start()
    for thread in group:
        thread.join()
    print("threads", launches["all"] - before)


def eager_ops() -> None:
    """Whole public calls on the pretended device: forward and backward, launches counted."""
    before = launches["all"]
    x = torch.zeros(8, 2, 64, dtype=torch.bfloat16, requires_grad=True)
    scale = torch.zeros(2, 64, dtype=torch.bfloat16, requires_grad=True)
    for _ in range(2):
        ln_modulate(x, scale, scale).sum().backward()
    h, out = gate_residual_ln_modulate(x, x, scale, scale, scale)
    (h.sum() + out.sum()).backward()
    print("eager launches", launches["all"] - before)


CASES = {"graph": traced_graph, "handles": kept_handles, "threads": threads, "eager": eager_ops}

if __name__ == "__main__":
    pretend()
    for name, case in CASES.items():
        print("==", name)
        case()
