# SPDX-License-Identifier: Apache-2.0
"""Comparisons: alignment by samples, envelope and tolerance, first divergence, exit code."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

import pytest
from report_support import falling, make_run

from mxflux.reports.alignment import Aligned, align, interpolate
from mxflux.reports.command import report_compare, to_json
from mxflux.reports.compare_report import compare_page, state_of
from mxflux.reports.comparison import compare
from mxflux.reports.curves import Curve
from mxflux.reports.envelope import half_width, is_repetition, recipe_difference
from mxflux.reports.errors import ReportError
from mxflux.reports.run_files import read_run
from mxflux.reports.verdict import judge

if TYPE_CHECKING:
    from pathlib import Path


def aligned(*losses: list[float]) -> Aligned:
    count = len(losses[0])
    return Aligned("training", tuple(float(n) for n in range(count)), tuple(map(tuple, losses)))


# -- alignment ------------------------------------------------------------------------------


def test_losses_are_aligned_by_samples_not_by_steps(tmp_path: Path) -> None:
    """Twice the batch, half the steps: the same curve over samples is the same."""
    first = make_run(tmp_path, "a", noise=0)
    other = make_run(
        tmp_path, "b", noise=0, steps=60, batch=32, loss=lambda step: falling(2 * step)
    )
    found = align([read_run(first), read_run(other)], "training", window=1)
    assert found is not None
    assert len(found.x) == 60
    assert not found.is_interpolated
    assert found.losses[0] == pytest.approx(found.losses[1], abs=1e-12)
    assert compare([first, other], tolerance=1e-9, window=1).others[0].judgements[1].outside == 0


def test_runs_without_common_sample_counts_are_interpolated_and_it_is_said(tmp_path: Path) -> None:
    first = make_run(tmp_path, "a", noise=0, batch=15)
    other = make_run(tmp_path, "b", noise=0, batch=1009, steps=60)
    found = align([read_run(first), read_run(other)], "training", window=1)
    assert found is not None
    assert found.is_interpolated
    page = compare_page(compare([first, other], tolerance=0.9))
    assert "interpolated at those of the baseline" in str(page.sections)


def test_interpolation_is_linear() -> None:
    ramp = Curve((0.0, 10.0, 20.0), (0.0, 1.0, 5.0))
    assert [interpolate(ramp, x) for x in (0, 5, 10, 15, 20)] == [0.0, 0.5, 1.0, 3.0, 5.0]


# -- envelope -------------------------------------------------------------------------------


def test_a_repetition_differs_in_its_seed_alone(tmp_path: Path) -> None:
    runs = {
        "a": make_run(tmp_path, "a", seed=1),
        "seed": make_run(tmp_path, "seed", seed=2),
        "precision": make_run(tmp_path, "precision", fp4="e2m1"),
    }
    files = {name: read_run(run) for name, run in runs.items()}
    assert is_repetition(files["a"], files["seed"])
    assert not is_repetition(files["a"], files["precision"])
    assert recipe_difference(files["a"], files["precision"]) == {"precision.fp4": (None, "e2m1")}
    record = json.loads((runs["seed"] / "run.json").read_text())
    (runs["seed"] / "run.json").write_text(json.dumps({**record, "tree_digest": "00" * 32}))
    assert not is_repetition(files["a"], read_run(runs["seed"]))


def test_the_envelope_is_as_wide_as_its_runs_lie_apart_nearby() -> None:
    crossing = [[0.0] * 21, [abs(n - 10) / 10 for n in range(21)]]
    width = half_width(crossing)
    assert width[10] == pytest.approx(0.2)
    assert width[0] == pytest.approx(1.0)


def test_repetitions_among_the_runs_make_the_envelope(tmp_path: Path) -> None:
    runs = [make_run(tmp_path, f"a{seed}", seed=seed) for seed in (1, 2, 3)]
    near = make_run(tmp_path, "near", seed=4, fp4="e2m1")
    far = make_run(tmp_path, "far", seed=4, fp4="e2m1", loss=lambda step: falling(step) + 0.2)
    found = compare([*runs, near])
    assert [run.name for run in found.baselines] == ["a1", "a2", "a3"]
    assert [j.criterion for j in found.others[0].judgements] == ["A/A envelope of 3 runs"] * 2
    assert compare([*runs, far]).exit_code == 1
    assert compare([runs[0], far], envelope=runs[1:]).exit_code == 1


def test_repetitions_alone_are_judged_by_the_tolerance(tmp_path: Path) -> None:
    runs = [make_run(tmp_path, f"a{seed}", seed=seed, noise=0.001) for seed in (1, 2)]
    found = compare(runs)
    assert [other.run.name for other in found.others] == ["a2"]
    assert found.exit_code == 0
    assert "5% of the baseline and a lag of 5% (default)" in state_of(found)[0]


# -- verdict --------------------------------------------------------------------------------


def test_the_first_lasting_difference_is_the_divergence() -> None:
    base = [1.0] * 100
    other = [1.0] * 100
    other[10] = 1.5  # a spike that comes back does not count
    other[60:] = [1.2] * 40
    found = judge(aligned(base, other), [0], 1, tolerance=0.1)
    assert (found.outcome, found.diverged_at, found.outside) == ("diverged", 60.0, 41)
    assert (found.worst, found.worst_at) == (pytest.approx(0.5), 10.0)
    assert found.final == pytest.approx(0.2)


def test_by_default_a_run_may_be_a_little_late_where_the_loss_falls() -> None:
    """Ten times less in 200 points: 1.2 % a point, so 5 % of the curve are 12 %."""
    base = [10 ** (-n / 200) for n in range(201)]
    late = [10 ** (-(n - 8) / 200) for n in range(201)]
    assert judge(aligned(base, late), [0], 1, tolerance=None).outcome == "same"
    assert judge(aligned(base, late), [0], 1, tolerance=0.05).diverged_at == 0
    later = [10 ** (-(n - 20) / 200) for n in range(201)]
    assert judge(aligned(base, later), [0], 1, tolerance=None).diverged_at == 0


def test_by_default_a_flat_loss_has_5_percent() -> None:
    base, near, far = ([value] * 100 for value in (1.0, 1.049, 1.051))
    assert judge(aligned(base, near), [0], 1, tolerance=None).outcome == "same"
    assert judge(aligned(base, far), [0], 1, tolerance=None).diverged_at == 0


def test_by_default_few_evaluations_allow_no_more() -> None:
    """The loss that it falls to within a tenth of the way counts, not the next evaluation's."""
    base, far = [1.0, 0.8, 0.6, 0.4, 0.2], [1.0, 0.8, 0.69, 0.4, 0.2]
    found = judge(aligned(base, far), [0], 1, tolerance=None)
    assert found.limits == pytest.approx([0.09, 0.08, 0.07, 0.06, 0.05])
    assert found.outside == 1


def test_a_spike_that_comes_back_is_counted_and_is_no_divergence() -> None:
    other = [1.0] * 100
    other[10] = 1.5
    found = judge(aligned([1.0] * 100, other), [0], 1, tolerance=0.1)
    assert (found.outcome, found.diverged_at, found.outside) == ("same", None, 1)


def test_a_difference_at_the_very_end_counts() -> None:
    found = judge(aligned([1.0] * 100, [1.0] * 99 + [1.5]), [0], 1, tolerance=0.1)
    assert (found.outcome, found.diverged_at) == ("diverged", 99.0)


@pytest.mark.parametrize("broken", [math.nan, math.inf])
def test_a_loss_that_is_no_number_is_beyond_every_limit(broken: float) -> None:
    found = judge(aligned([1.0] * 10, [1.0] * 5 + [broken] * 5), [0], 1, tolerance=1e9)
    assert (found.outcome, found.diverged_at, found.worst) == ("diverged", 5.0, math.inf)


def test_exit_codes(tmp_path: Path) -> None:
    base = make_run(tmp_path, "base", noise=0.001)
    near = make_run(tmp_path, "near", noise=0.001, fp4="e2m1")
    far = make_run(tmp_path, "far", fp4="e2m1", loss=lambda step: falling(step) * 1.2)
    assert compare([base, near]).exit_code == 0
    assert compare([base, far]).exit_code == 1
    assert compare([base, far], tolerance=0.5).exit_code == 0
    assert compare([base, near, far]).exit_code == 1
    assert "far diverges in validation loss at" in state_of(compare([base, near, far]))[0]
    (near / "metrics.jsonl").write_text("")
    found = compare([base, near])
    assert found.exit_code == 4
    assert "fewer than two losses" in compare_page(found).state


@pytest.mark.parametrize("kind", ["train", "evaluation"])
def test_equal_bit_for_bit(tmp_path: Path, kind: str) -> None:
    base = make_run(tmp_path, "base", seed=1)
    same = make_run(tmp_path, "same", seed=1)
    found = compare([base, same], assert_equal=True)
    assert (found.exit_code, state_of(found)[0]) == (0, "equal bit for bit")
    assert "all 120 common losses equal bit for bit" in str(compare_page(found).sections)
    lines = (same / "metrics.jsonl").read_text().splitlines()
    at = max(i for i, line in enumerate(lines) if f'"{kind}", "step": 100,' in line)
    event = json.loads(lines[at])
    event["loss"] = math.nextafter(event["loss"], 9)
    lines[at] = json.dumps(event)
    (same / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    found = compare([base, same], assert_equal=True)
    assert found.exit_code == 1
    equality = found.others[0].equality["training" if kind == "train" else "validation"]
    assert equality.differs_at == 1600.0
    assert equality.equal == (99 if kind == "train" else 2)
    assert "same is not equal bit for bit" in state_of(found)[0]
    assert compare([base, same]).exit_code == 0


def test_a_part_of_a_run_is_not_equal_to_the_whole(tmp_path: Path) -> None:
    base = make_run(tmp_path, "base")
    part = make_run(tmp_path, "part")
    lines = (part / "metrics.jsonl").read_text().splitlines(keepends=True)
    (part / "metrics.jsonl").write_text("".join(lines[:40]))
    found = compare([base, part], assert_equal=True)
    assert found.others[0].equality["training"].differs_at is None
    assert found.exit_code == 1


def test_a_run_that_ended_early_says_how_much_it_covers(tmp_path: Path) -> None:
    base = make_run(tmp_path, "base", noise=0)
    short = make_run(tmp_path, "short", noise=0, steps=60)
    found = compare([base, short])
    assert found.others[0].covered == pytest.approx(0.5)
    said = "short covers 50.0% of the baseline's samples"
    assert said in str(compare_page(found).sections)
    assert found.exit_code == 4
    assert state_of(found)[0].startswith(f"not judged: {said}")
    asked = compare([base, short], partial=True)
    assert asked.exit_code == 0
    assert state_of(asked) == (
        f"the same within 5% of the baseline and a lag of 5% (default), but {said}",
        "warn",
    )
    assert compare([short, base]).exit_code == 0
    far = make_run(tmp_path, "far", steps=60, loss=lambda step: falling(step) * 1.2)
    assert compare([base, far]).exit_code == 1


def test_a_repetition_that_ended_early_leaves_the_end_unjudged(tmp_path: Path) -> None:
    base = make_run(tmp_path, "base", seed=1)
    short = make_run(tmp_path, "short", seed=2)
    near = make_run(tmp_path, "near", noise=0.001, fp4="e2m1")
    lines = (short / "metrics.jsonl").read_text().splitlines(keepends=True)
    (short / "metrics.jsonl").write_text("".join(lines[:100]))
    found = compare([base, near], envelope=[short], tolerance=0.5)
    assert found.exit_code == 4
    assert "short covers" in state_of(found)[0]


# -- files ----------------------------------------------------------------------------------


def test_markdown_alone_needs_no_plots(tmp_path: Path) -> None:
    runs = [make_run(tmp_path, name, seed=seed) for name, seed in (("a", 1), ("b", 2))]
    comparison, written = report_compare(runs, tmp_path / "c.md")
    assert written == [tmp_path / "c.md"]
    assert "What was asked differently" in written[0].read_text()
    assert to_json(comparison)["exit_code"] == comparison.exit_code


def test_json_has_the_numbers(tmp_path: Path) -> None:
    base = make_run(tmp_path, "base", noise=0)
    far = make_run(tmp_path, "far", noise=0, fp4="e2m1", loss=lambda step: falling(step) + 0.5)
    found: dict[str, Any] = to_json(compare([base, far]))
    (run,) = found["runs"]
    assert [j["outcome"] for j in run["judgements"]] == ["diverged", "diverged"]
    assert run["judgements"][0]["final_difference"] == pytest.approx(0.5)
    assert json.loads(json.dumps(found)) == found


@pytest.mark.parametrize(
    ("count", "options", "message"),
    [(1, {}, "two runs at least"), (2, {"tolerance": -0.1}, "must not be negative"),
     (2, {"tolerance": math.nan}, "must not be negative")],
)  # fmt: skip
def test_what_makes_no_sense_is_refused(
    tmp_path: Path, count: int, options: dict[str, float], message: str
) -> None:
    runs = [make_run(tmp_path, str(number)) for number in range(count)]
    with pytest.raises(ReportError, match=message):
        report_compare(runs, **options)
