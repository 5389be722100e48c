# SPDX-License-Identifier: Apache-2.0
"""benchmarks/counters.py: what Nsight Compute prints becomes the right row, or an error."""

from __future__ import annotations

import sys

import fusions_support as support
import pytest

sys.path.insert(0, str(support.OVERLAY.parent / "benchmarks"))

import counters

HEAD = (
    '"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size",'
    '"Grid Size","Device","CC","Section Name","Metric Name","Metric Unit","Metric Value"'
)
VALUES = {
    "gpu__time_duration.sum": "49,728",
    "dram__bytes_read.sum": "100,941,312",
    "dram__bytes_write.sum": "78,975,488",
    "dram__throughput.avg.pct_of_peak_sustained_elapsed": "75.23",
    "smsp__issue_active.avg.pct_of_peak_sustained_active": "63.6",
    "sm__warps_active.avg.pct_of_peak_sustained_active": "69.53",
    "launch__registers_per_thread": "40",
    "launch__grid_size": "24,576",
    "launch__waves_per_multiprocessor": "15.52",
    counters.STALL.format("long_scoreboard"): "8.09",
    counters.STALL.format("barrier"): "1.07",
    counters.STALL.format("lg_throttle"): "0",
    counters.STALL.format("mio_throttle"): "0.08",
    counters.STALL.format("short_scoreboard"): "0.6",
}
WHAT = counters.Profiled("norm_rope_forward", "512x32", "norm_rope_forward_kernel", 203_200_000)


def printed(kernel: str = WHAT.kernel) -> str:
    rows = [
        f'"0","512","python3","127.0.0.1","{kernel}","1","7","(128, 1, 1)","(24576, 1, 1)","0",'
        f'"9.0","Command line profiler metrics","{name}","","{value}"'
        for name, value in VALUES.items()
    ]
    return "\n".join(["==PROF== Connected", "what the worker printed", HEAD, *rows])


def test_a_row_has_the_figures_of_its_kernel() -> None:
    assert set(counters.METRICS) == set(VALUES)
    (found,) = counters.parse(printed(), [WHAT])
    assert counters.line(WHAT, found) == (
        "|norm_rope_forward|512x32|norm_rope_forward|49.7|100.9|79.0|203.2|75|64|70|40|24576|15.52|"
        "long scoreboard 8.1, barrier 1.1|"
    )


@pytest.mark.parametrize("text", ["==ERROR== no permission", printed("another_kernel")])
def test_other_kernels_than_those_launched_are_an_error(text: str) -> None:
    with pytest.raises(ValueError, match="launched were \\['norm_rope_forward_kernel'\\]"):
        counters.parse(text, [WHAT])


def test_without_a_gpu_it_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        counters.main([])
    assert stopped.value.code == 2
    assert "no GPU" in capsys.readouterr().err
