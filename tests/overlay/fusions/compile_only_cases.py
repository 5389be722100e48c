# SPDX-License-Identifier: Apache-2.0
"""Runs in its own process: traced graphs and kept handles on a GPU that is not there."""

from __future__ import annotations

import functools
import re
import threading
from collections import Counter
from typing import Any

import torch
from functorch.compile import make_boxed_func
from torch._dynamo.backends.common import aot_autograd
from torch._higher_order_ops.triton_kernel_wrap import (
    TritonKernelWrapperFunctional,
    TritonKernelWrapperMutation,
    kernel_side_table,
)
from torch._library.triton import get_triton_kernels_for_op

from mxflux.fusions import catalog, checks, crosscompile, launch, tables
from mxflux.fusions.gate_residual import gate_residual_ln_modulate
from mxflux.fusions.kernels.reduce import reduce_partials_kernel
from mxflux.fusions.ln_modulate import ln_modulate
from mxflux.fusions.norm_rope import norm_rope
from mxflux.fusions.norm_rope_qkv import norm_rope_qkv
from mxflux.fusions.rope_table import RopeTable

launches: Counter[str] = Counter()
REDUCE = {"OUTPUTS": 1, "BLOCK_P": 4, "BLOCK_C": 32, "FP64": False, "DEPENDENT": False}


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
    crosscompile.driver.set_active(Device(crosscompile.target("gfx950")))
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
        {"OUTPUTS": 1, "BLOCK_P": 4, "BLOCK_C": 32, "FP64": False, "DEPENDENT": False},
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
        {"OUTPUTS": 1, "BLOCK_P": 8, "BLOCK_C": 32, "FP64": False, "DEPENDENT": False},
        1,
    )
    partial, out = torch.zeros(1, 8, 32), torch.zeros(32)
    group = [threading.Thread(target=cold, args=(partial, out, out, out)) for _ in range(4)]
    for thread in group:
        thread.start()
    for thread in group:
        thread.join()
    print("threads", launches["all"] - before)


def arguments(seq: int, batch: int, width: int) -> dict[str, list[Any]]:
    """Leaves of each op: heads of 128, modulation as chunks of one projection."""
    heads, make = width // 128, functools.partial(torch.empty, dtype=torch.bfloat16)
    mixed, weights = make(seq, batch, heads, 384), [make(128), make(128)]
    hidden = [make(seq, batch, width), make(seq, batch, width)]
    gate, scale, shift = make(batch, 3 * width).chunk(3, -1)
    found = {
        "norm_rope": [mixed[..., 128:256], weights[0]],
        "norm_rope_qkv": [mixed, *weights],
        "ln_modulate": [hidden[0], scale, shift],
        "gate_residual_ln_modulate": [*hidden, gate, scale, shift],
    }
    return {name: [t.detach().requires_grad_() for t in ts] for name, ts in found.items()}


def calls(table: RopeTable) -> dict[str, tuple[Any, Any]]:
    """Of each op, what a model calls, and the registered op with the same arguments."""
    ops, angles = torch.ops.mxflux, (table.cos_sin, 1e-6)
    return {
        "norm_rope": (lambda *a: norm_rope(*a, table), lambda *a: ops.norm_rope(*a, *angles)[:1]),
        "norm_rope_qkv": (
            lambda *a: norm_rope_qkv(*a, table),
            lambda *a: ops.norm_rope_qkv(*a, *angles)[:3],
        ),
        "ln_modulate": (ln_modulate, lambda *a: ops.ln_modulate(*a, 1e-6)[:1]),
        "gate_residual_ln_modulate": (
            gate_residual_ln_modulate,
            lambda *a: ops.gate_residual_ln_modulate(*a, 1e-6)[:2],
        ),
    }


def differentiate(outputs: Any, inputs: list[Any]) -> None:
    """Backward through every output."""
    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    torch.autograd.grad(outputs, inputs, [torch.empty_like(o) for o in outputs])


def eager_ops() -> None:
    """Whole public calls on the pretended device, with and without gradients, and the registered
    ops: launches and higher-order-op calls counted.
    """
    wrapped: Counter[str] = Counter()
    for kind in (TritonKernelWrapperMutation, TritonKernelWrapperFunctional):
        stock = kind.__call__
        kind.__call__ = lambda self, *a, stock=stock, **k: (
            wrapped.update(["calls"]),
            stock(self, *a, **k),
        )[1]
    inputs = arguments(8, 2, 256)
    for name, functions in calls(RopeTable(torch.randn(8, 1, 128))).items():
        for kind, function in zip(("public", "registered"), functions, strict=True):
            counts = []
            for _ in range(2):
                before = launches["all"]
                with torch.no_grad():
                    function(*inputs[name])
                counts.append(launches["all"] - before)
                differentiate(function(*inputs[name]), inputs[name])
                counts.append(launches["all"] - before)
            print(name, kind, *counts, "wrapped", wrapped["calls"])
    one = launch.Launch(reduce_partials_kernel, 2, (4, 64, 2), dict(REDUCE), 4)
    one.traced(torch.zeros(1, 4, 64), *[torch.zeros(64)] * 3)
    print("the counter counts", wrapped["calls"])


def recorded(kernel: Any, grid: Any, values: dict[str, Any], warps: int) -> str:
    """A launch as text: all that decides its bits besides the tensors."""
    found = sorted((k, v) for k, v in values.items() if not isinstance(v, torch.Tensor))
    return f"{kernel.fn.__name__} {tuple(grid)} {warps} {found}"


def traced_node(node: Any) -> str:
    """What a kernel's node in a graph launches."""
    kernel = kernel_side_table.get_kernel(node.kwargs["kernel_idx"])
    (config,) = kernel.configs  # num_warps makes torch wrap the kernel in an autotuner of one
    values = dict(kernel_side_table.get_constant_args(node.kwargs["constant_args_idx"]))
    values |= {k: v for k, v in node.kwargs["kwargs"].items() if not hasattr(v, "meta")}
    (grid,) = node.kwargs["grid"]
    return recorded(kernel.fn, grid, values, config.num_warps)


def same_launches() -> None:
    """Eager and traced launch the same kernels with the same numbers, at a shape of Flux."""
    eager: Counter[str] = Counter()
    traced: Counter[str] = Counter()
    stock = launch.Launch.__call__

    def note_eager(self: launch.Launch, *pointers: Any) -> None:
        names = self.kernel.arg_names[len(pointers) :]
        values = dict(zip(names, (*self.scalars, *self.constexprs.values()), strict=True))
        eager[recorded(self.kernel, self.grid, values, self.options["num_warps"])] += 1
        stock(self, *pointers)

    def note_traced(module: Any, _: Any) -> Any:
        nodes = [n for n in module.graph.nodes if "triton_kernel_wrapper" in str(n.target)]
        traced.update(traced_node(node) for node in nodes)
        return make_boxed_func(module.forward)

    launch.Launch.__call__ = note_eager
    inputs = arguments(256, 32, 3072)
    for name, (function, _) in calls(RopeTable(torch.randn(256, 1, 128))).items():
        if name == "norm_rope_qkv":  # opaque: a graph runs the eager launch
            continue
        eager.clear()
        traced.clear()
        differentiate(function(*inputs[name]), inputs[name])
        compiled = torch.compile(function, backend=aot_autograd(fw_compiler=note_traced))
        launch.Launch.__call__ = stock
        differentiate(compiled(*inputs[name]), inputs[name])
        launch.Launch.__call__ = note_eager
        print(name, sum(eager.values()), "same" if eager == traced else f"{eager} {traced}")
    launch.Launch.__call__ = stock


def cache_keys() -> None:
    """The kernels whose source torch puts into the key of its cache of compiled graphs."""
    for name in ("norm_rope", "ln_modulate", "gate_residual_ln_modulate"):
        for op in (f"mxflux::{name}", f"mxflux::{name}_backward"):
            print(op, *sorted(kernel.fn.__name__ for kernel in get_triton_kernels_for_op(op)))


def dependent_launches() -> None:
    """griddepcontrol of every backward and of its sum; in the sum, before its first load."""
    for arch in ("sm_90", "gfx950"):
        with crosscompile.compile_for(arch):
            for op in ("norm_rope_backward", "qkv_backward", "ln_modulate_backward"):
                config = tables.configuration(arch, op, *catalog.table_rows(op, 512, 32))
                found = []
                for call in catalog.Factory(arch).calls(op, 512, 32, config):
                    asm = crosscompile.compile_launch(call.launch, call.pointers).asm
                    text = asm.get("ptx", asm.get("amdgcn"))
                    found += re.findall(r"griddepcontrol\.\w+|ld\.global", text)
                ours = [
                    word for i, word in enumerate(found) if "grid" in word or "grid" in found[i - 1]
                ]
                print(arch, op, *(ours[:3] if "griddepcontrol.wait" in ours else ["none"]))


def shared_memory() -> None:
    """Kilobytes of a block's shared memory on sm_90 where they could be too many."""
    sizes = (("norm_rope_backward", 256), ("gate_residual_backward", 128))
    with crosscompile.compile_for("sm_90"):
        for op, catalog.HEAD_DIM in sizes:
            config = tables.configuration("sm_90", op, *catalog.table_rows(op, 512, 32))
            factory = catalog.Factory("sm_90", dtype=torch.float32, weight_dtype=torch.float32)
            call = factory.calls(op, 512, 32, config)[0]
            compiled = crosscompile.compile_launch(call.launch, call.pointers)
            print(op, -(-compiled.metadata.shared // 1024))
    catalog.HEAD_DIM = 128


CASES = {
    "shared": shared_memory,
    "dependent": dependent_launches,
    "keys": cache_keys,
    "graph": traced_graph,
    "handles": kept_handles,
    "threads": threads,
    "same": same_launches,
    "eager": eager_ops,
}

if __name__ == "__main__":
    pretend()
    for name, case in CASES.items():
        print("==", name)
        case()
