# SPDX-License-Identifier: Apache-2.0
"""What the device did in a step: time by family of kernels, gaps, and who was waited for."""

from __future__ import annotations

import json
import re
import tempfile
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch.profiler import ProfilerActivity, profile

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

FAMILIES: tuple[tuple[str, str], ...] = (
    ("attention", r"fmha|flash|attention|sdpa|cudnn_generated.*(fprop|bprop)|aiter.*fmha"),
    ("MX packing", r"mx_pack|_pack_kernel|quantize_mx"),
    ("MX GEMM", r"mx_gemm|gemm_a4w4|gemm_a6w6"),
    (
        "GEMM",
        r"gemm|nvjet|cublas|cutlass.*(gemm|tensorop)|xmma|hipblaslt|Cijk|addmm|(?<!\w)mm(?!\w)|bmm|linear",
    ),
    ("QK-norm + RoPE (fused)", r"qkv_(forward|backward)_kernel|norm_rope"),
    ("LN-modulate, gated residual (fused)", r"ln_modulate"),
    ("GELU (fused)", r"gelu_(forward|backward)_kernel"),
    ("sum of partials (fused)", r"reduce_partials"),
    ("optimizer", r"adam|multi_tensor|FusedOptimizer"),
    ("compiled elementwise", r"^triton_"),
    ("norm", r"layer_?norm|rms_?norm|GammaBeta|vectorized_layer"),
    ("reduction", r"reduce|sum|mean"),
    ("copy, cat, fill", r"cat|copy|memcpy|memset|fill|zero|transpose"),
    ("elementwise", r"elementwise|gelu|addcmul|mul|add|sub|div|pow|rsqrt|cos|sin|index|silu"),
)
"""Family -> what the names of its kernels match; the first match counts."""


SPIN = 40_000_000
"""Clock cycles, about 20 ms."""


@dataclass(frozen=True)
class Kernel:
    """One kernel, copy or fill. start, end, launched (its launch returned): microseconds."""

    name: str
    start: float
    end: float
    launched: float | None


@dataclass
class Timeline:
    """A step on the device, microseconds.

    idle: no kernel runs. launch_bound: the part of it before kernels that the host had launched in
    time. host_bound: the part before kernels whose launch returned after the device had run dry.
    """

    span: float
    busy: float
    host_bound: float
    launch_bound: float
    kernels: int
    families: dict[str, tuple[int, float]] = field(default_factory=dict)
    slowest: list[tuple[str, int, float]] = field(default_factory=list)

    @property
    def idle(self) -> float:
        """Time without a kernel."""
        return self.span - self.busy


def family(name: str) -> str:
    """The family of a kernel."""
    for title, pattern in FAMILIES:
        if re.search(pattern, name, re.IGNORECASE):
            return title
    return "other"


def record(step: Callable[[], None], device: torch.device) -> Timeline:
    """Profile one step. On the CPU operators stand for kernels, and nothing is launched.

    On a GPU it is enqueued behind a spin of the device, as it follows another step in training:
    what is host-bound then is where the host, slowed by the profiler, falls behind.
    """
    on_gpu = device.type == "cuda"
    activities = [ProfilerActivity.CPU] + ([ProfilerActivity.CUDA] if on_gpu else [])
    with profile(activities=activities) as recorded:
        if on_gpu:
            torch.cuda._sleep(SPIN)
        step()
        if on_gpu:
            torch.cuda.synchronize()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        recorded.export_chrome_trace(str(path))
        events = json.loads(path.read_text(encoding="utf-8"))["traceEvents"]
    return summarize(_gpu_kernels(events) if on_gpu else _cpu_operators(events))


def _gpu_kernels(events: list[dict[str, Any]]) -> list[Kernel]:
    launches: dict[int, float] = {}
    for event in events:
        if event.get("cat") in ("cuda_runtime", "cuda_driver"):
            launches[event["args"].get("correlation")] = event["ts"] + event["dur"]
    return [
        Kernel(e["name"], e["ts"], e["ts"] + e["dur"], launches.get(e["args"].get("correlation")))
        for e in events
        if e.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset") and "spin_kernel" not in e["name"]
    ]


def _cpu_operators(events: list[dict[str, Any]]) -> list[Kernel]:
    """Operators that no other operator contains."""
    found = sorted(
        (e for e in events if e.get("cat") == "cpu_op" and "dur" in e),
        key=lambda e: (e["tid"], e["ts"], -e["dur"]),
    )
    kept: list[Kernel] = []
    thread, end = None, float("-inf")
    for e in found:
        if e["tid"] == thread and e["ts"] < end:
            continue
        thread, end = e["tid"], e["ts"] + e["dur"]
        kept.append(Kernel(e["name"].removeprefix("aten::"), e["ts"], end, None))
    return kept


def summarize(kernels: Iterable[Kernel]) -> Timeline:
    """Families, gaps and their causes; ValueError when nothing ran."""
    ordered = sorted(kernels, key=lambda k: k.start)
    if not ordered:
        raise ValueError("the profiler saw no kernel: is CUPTI (or roctracer) installed?")
    busy = host = launch = 0.0
    end = ordered[0].start
    for kernel in ordered:
        gap = max(0.0, kernel.start - end)
        if kernel.launched is not None and kernel.launched > end:
            waited = min(gap, kernel.launched - end)
            host, launch = host + waited, launch + gap - waited
        else:
            launch += gap
        busy += max(0.0, kernel.end - max(end, kernel.start))
        end = max(end, kernel.end)
    return Timeline(
        end - ordered[0].start, busy, host, launch, len(ordered),
        _sums(ordered, lambda k: family(k.name)), _slowest(ordered),
    )  # fmt: skip


def _sums(kernels: list[Kernel], key: Callable[[Kernel], str]) -> dict[str, tuple[int, float]]:
    sums: dict[str, tuple[int, float]] = defaultdict(lambda: (0, 0.0))
    for kernel in kernels:
        count, time = sums[key(kernel)]
        sums[key(kernel)] = (count + 1, time + kernel.end - kernel.start)
    return dict(sorted(sums.items(), key=lambda item: -item[1][1]))


def _slowest(kernels: list[Kernel], most: int = 25) -> list[tuple[str, int, float]]:
    sums = _sums(kernels, lambda k: k.name)
    return [(name[:120], count, time) for name, (count, time) in list(sums.items())[:most]]
