# SPDX-License-Identifier: Apache-2.0
"""Traced graphs and kept handles, in processes that compile for gfx950 and launch nothing."""

from __future__ import annotations

from pathlib import Path

import fusions_support as support
import pytest

from mxflux.fusions.kernels.reduce import reduce_partials_kernel
from mxflux.fusions.launch import Launch

CASES = str(Path(__file__).with_name("compile_only_cases.py"))


@pytest.fixture(scope="module")
def lines() -> dict[str, list[str]]:
    """What each case printed; one process for all, since starting torch is most of the time."""
    done = support.run_python(CASES)
    assert done.returncode == 0, done.stderr[-2000:]
    parts = done.stdout.split("== ")[1:]
    return {part.splitlines()[0]: part.splitlines()[1:] for part in parts}


def test_traceable_ops_show_their_kernels_and_clone_nothing_strided(
    lines: dict[str, list[str]],
) -> None:
    assert [line for line in lines["graph"] if "kernels" in line] == ["kernels 3", "kernels 6"]
    assert not [line for line in lines["graph"] if line.endswith("strided")]


def test_no_traced_kernel_writes_one_tensor_through_two_arguments(
    lines: dict[str, list[str]],
) -> None:
    """Functionalization would clone it twice and keep either copy."""
    assert lines["graph"].count("written once") == 9
    assert "written twice" not in lines["graph"]


def test_kept_handles_and_their_guards(lines: dict[str, list[str]]) -> None:
    assert lines["handles"] == [
        "kept True 1",
        "again 2 True",
        "misaligned 1",
        "small storage keeps True",
        "big storage keeps False",
    ]


def test_a_sum_waits_before_its_first_load_where_launches_overlap(
    lines: dict[str, list[str]],
) -> None:
    """The backward lets it start, it waits, then it loads; AMD has no such launch."""
    order = "griddepcontrol.launch_dependents griddepcontrol.wait ld.global"
    ops = ("norm_rope_backward", "qkv_backward", "ln_modulate_backward")
    assert lines["dependent"] == [
        *(f"sm_90 {op} {order}" for op in ops),
        *(f"gfx950 {op} none" for op in ops),
    ]


def test_deep_pipelines_fit_a_block_in_fp32(lines: dict[str, list[str]]) -> None:
    """99 KiB on sm_86 and sm_120; the tables were tuned in bf16."""
    used = dict(line.split() for line in lines["shared"])
    assert len(used) == 2
    assert all(32 < int(kilobytes) <= 99 for kilobytes in used.values()), used


def test_a_traced_launch_neither_overlaps_nor_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Inductor takes a kernel with inline assembly to write all of its arguments."""
    seen: list[dict[str, object]] = []
    monkeypatch.setattr(
        "mxflux.fusions.launch.wrap_triton", lambda _: {(1, 1, 1): lambda *_, **kw: seen.append(kw)}
    )
    fixed = {"OUTPUTS": 1, "BLOCK_P": 4, "BLOCK_C": 32, "FP64": False, "DEPENDENT": True}
    launch = Launch(reduce_partials_kernel, 1, (1, 2, 1), fixed, 4, dependent=True)
    launch.traced()
    assert launch.dependent == {"launch_pdl": True}
    assert seen == [fixed | {"DEPENDENT": False, "num_warps": 4}]


def test_cold_launches_from_several_threads(lines: dict[str, list[str]]) -> None:
    assert lines["threads"] == ["threads 4"]


@pytest.mark.parametrize("kind", ["public", "registered"])
@pytest.mark.parametrize(
    "name", ["norm_rope", "norm_rope_qkv", "ln_modulate", "gate_residual_ln_modulate"]
)
def test_eager_launches_one_kernel_forward_two_backward_and_no_higher_order_op(
    lines: dict[str, list[str]], name: str, kind: str
) -> None:
    """Without gradients 1 launch, with them 1 + 2; cold, then from kept handles."""
    assert f"{name} {kind} 1 4 1 4 wrapped 0" in lines["eager"]


def test_the_count_of_higher_order_ops_counts(lines: dict[str, list[str]]) -> None:
    assert lines["eager"][-1] == "the counter counts 1"


def test_traced_launches_are_the_eager_ones_to_the_last_number(
    lines: dict[str, list[str]],
) -> None:
    assert lines["same"] == [
        "norm_rope 3 same",
        "ln_modulate 3 same",
        "gate_residual_ln_modulate 3 same",
    ]


def test_compiled_graphs_are_cached_by_the_source_of_their_kernels(
    lines: dict[str, list[str]],
) -> None:
    """Otherwise a new release would run the old one's kernels from the user's cache."""
    kernels = {"norm_rope": "norm_rope", "ln_modulate": "ln_modulate"}
    kernels["gate_residual_ln_modulate"] = "ln_modulate"
    assert lines["keys"] == [
        line
        for op, kernel in kernels.items()
        for line in (
            f"mxflux::{op} {kernel}_forward_kernel reduce_partials_kernel",
            f"mxflux::{op}_backward {kernel}_backward_kernel reduce_partials_kernel",
        )
    ]


def test_a_run_time_float_is_refused() -> None:
    """Triton passes one as fp32, Inductor as fp64: mean + eps would have other bits compiled."""
    fixed = {"OUTPUTS": 1, "BLOCK_P": 4, "BLOCK_C": 32, "FP64": False}
    with pytest.raises(TypeError, match=r"reduce_partials_kernel: scalars: got \(1, 2, 1e-06\)"):
        Launch(reduce_partials_kernel, 1, (1, 2, 1e-6), fixed, 4)  # type: ignore[arg-type]
