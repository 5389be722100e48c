# SPDX-License-Identifier: Apache-2.0
"""What a step benchmark makes of a trace and of its options, without a model."""

from __future__ import annotations

import dataclasses
import json
import re
import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "overlay"))

from mxflux.benchmarks import peers, step, timeline
from mxflux.benchmarks.peers import torchtitan
from mxflux.benchmarks.report import markdown
from mxflux.benchmarks.results import Measured, Result, restore
from mxflux.benchmarks.timeline import Kernel, Timeline, family, summarize
from mxflux.benchmarks.workload import Workload
from mxflux.flux.architecture import FLUX_12B

NAMES = {
    "nvjet_tst_128x256_64x4_1x2_h_bz_coopA_TNT": "GEMM",
    "void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu>": "GEMM",
    "Cijk_Alik_Bljk_BBS_BH": "GEMM",
    "void pytorch_flash::flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel": "attention",
    "qkv_grad_pack_kernel": "MX packing",
    "mx_pack_kernel": "MX packing",
    "qkv_backward_kernel": "QK-norm + RoPE (fused)",
    "ln_modulate_forward_kernel": "LN-modulate, gated residual (fused)",
    "reduce_partials_kernel": "sum of partials (fused)",
    "triton_poi_fused_add_gelu_3": "compiled elementwise",
    "void at::native::vectorized_elementwise_kernel<4, GeluCUDAKernelImpl>": "elementwise",
    "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float>>": "reduction",
    "void at::native::(anonymous namespace)::CatArrayBatchedCopy": "copy, cat, fill",
    "Memcpy DtoD (Device -> Device)": "copy, cat, fill",
    "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel": "norm",
    "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<FusedAdam>": "optimizer",
}


@pytest.mark.parametrize("name", NAMES)
def test_kernels_have_their_family(name: str) -> None:
    assert family(name) == NAMES[name]


def test_gaps_are_the_hosts_only_where_the_device_had_run_dry() -> None:
    found = summarize([
        Kernel("a_gemm", 0, 10, 1),
        Kernel("b", 12, 20, 5),  # launched while a ran: 2 us are the device's own
        Kernel("b", 50, 60, 45),  # launched 25 us after the device had run dry, started 5 later
        Kernel("a_gemm", 55, 70, 46),  # overlaps
    ])  # fmt: skip
    assert (found.span, found.busy, found.idle) == (70, 38, 32)
    assert (found.host_bound, found.launch_bound) == (25, 7)
    assert found.families == {"GEMM": (2, 25), "other": (2, 18)}
    assert found.slowest[0] == ("a_gemm", 2, 25)


def test_an_empty_trace_is_an_error_and_not_a_fast_step() -> None:
    with pytest.raises(ValueError, match="the profiler saw no kernel"):
        summarize([])


def test_a_trace_of_the_profiler_is_read() -> None:
    events = [
        {"cat": "cuda_runtime", "ts": 5, "dur": 2, "args": {"correlation": 9}},
        {"cat": "kernel", "name": "k", "ts": 8, "dur": 4, "args": {"correlation": 9}},
        {"cat": "cpu_op", "name": "aten::mm", "ts": 0, "dur": 9, "tid": 1},
        {"cat": "cpu_op", "name": "aten::empty", "ts": 1, "dur": 2, "tid": 1},
    ]
    assert timeline._gpu_kernels(events) == [Kernel("k", 8, 12, 7)]
    assert timeline._cpu_operators(events) == [Kernel("mm", 0, 9, None)]


def test_one_block_of_each_kind_has_the_12b_models_widths() -> None:
    work = Workload.of("flux_12b", ["joint", "single"], 32, (256, 256), "cpu")
    arch = dataclasses.replace(FLUX_12B, num_joint_layers=1, num_single_layers=1)
    assert work.architecture == arch
    assert 0.68e12 < work.flops / 32 < 0.75e12
    unit = 32 * 512 * 3072 * 2
    assert work.floor_bytes == (55 + 46) * unit
    assert Workload.of("flux_12b", ["all"], 1, (256, 256), "cpu").architecture == FLUX_12B


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--preset", "flux_13b"], "preset 'flux_13b' is unknown. Choose from: flux_12b"),
        (["--blocks", "joint,dual"], "blocks joint,dual: name joint, single, or only all"),
        (["--tokens", "256"], "--tokens '256': expected image+text"),
        (["--tokens", "250+256"], "the image must be square"),
        (["--micro-batch", "0"], "--micro-batch '0': expected numbers"),
        (["--compare", "eager,jax"], "--compare 'jax' is unknown. Choose from: eager, compile"),
    ],
)
def test_wrong_options_are_named(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert step.main(["--device", "cpu", *arguments]) == 2
    assert message in capsys.readouterr().err


def test_no_gpu_is_said(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert step.main(["--device", "cuda"]) == 2
    assert "sees no GPU" in capsys.readouterr().err


@pytest.mark.parametrize("name", peers.NAMES)
def test_a_peer_that_is_missing_is_an_error(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peers, "find_spec", lambda _: None)
    assert step.main(["--device", "cpu", "--preset", "flux_tiny", "--compare", name]) == 2
    assert f"{name} is not installed. Run: pip install {name}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (ModuleNotFoundError("No module named 'tyro'", name="tyro"), "pip install tyro: "),
        (
            ImportError("cannot import name 'X' from 'torch.a' (/x)", name="torch.a"),
            r"pip install torchtitan==0\.\d\.\d: .*cannot import name 'X' from 'torch.a'$",
        ),
    ],
)
def test_a_peer_that_does_not_import_says_what_to_install(error: ImportError, message: str) -> None:
    text = torchtitan.explain(error, "0.3.0")
    assert re.match(message, text)
    assert f"torchtitan 0.3.0 does not import with torch {torch.__version__}" in text


def measured(variant: str, milliseconds: float) -> Measured:
    line = Timeline(
        1000.0, 900.0, 40.0, 60.0, 7, {"GEMM": (3, 600.0), "other": (4, 300.0)}, [("k", 7, 900.0)]
    )
    return Measured(variant, 32, milliseconds, 1.0, [milliseconds], 2.0, 5, line, {"fused": 3})


def test_the_report_has_predictions_peers_and_failures() -> None:
    result = Result(
        "cmd", "H200", {"torch": "2"}, "flux_12b", "joint,single", "step", "bf16", (256, 256),
        800.0, 4.0e12, {"32": {"flops": 22 * 10**12, "floor_bytes": 10**10}},
        [measured("eager", 60.0), measured("fused", 40.0), measured("diffusers", 50.0),
         Measured("diffusers-compile", 32, error="illegal memory access")],
    )  # fmt: skip
    text = markdown(result)
    assert "27.5 ms of matrix products, 2.5 ms of memory traffic" in text
    assert "| mxtree, fusions on | 40.00 | 38.5 | 800 | 69% |" in text
    assert "| 4.0% | 1.25 |" in text  # host-bound share; times the peer's
    assert "failed: illegal memory access" in text
    assert "Engaged: fused 3." in text


def test_a_workers_row_survives_its_file() -> None:
    row = measured("fused", 40.0)
    found = json.loads(json.dumps(dataclasses.asdict(row)))
    back = restore(found)
    assert dataclasses.asdict(back) == {
        **dataclasses.asdict(row),
        "timeline": dataclasses.asdict(back.timeline),
    }  # type: ignore[arg-type]
    assert back.timeline is not None
    assert back.timeline.idle == 100.0
