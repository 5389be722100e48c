# SPDX-License-Identifier: Apache-2.0
"""Wrong keys and values: the place, the value, what is allowed and what was meant."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from conftest import Faults, Load


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        (
            "device: cpu",
            "device: gpu",
            "r.yaml:1:9: device: expected one of cpu, h200, mi355x, got",
        ),
        ("device: cpu\n", "", "r.yaml:1:1: device is missing (cpu | h200 | mi355x)"),
        ("optimizer:\n  lr: 2e-4\n", "", "r.yaml:1:1: section 'optimizer' is missing (it needs op"),
        ("  train_iters: 100\n", "", "r.yaml:9:3: schedule.train_iters is missing (integer)"),
        (
            "  preset: flux_tiny",
            "  preset: flux_tiny\n  attention_backned: auto",
            (
                "r.yaml:6:3: unknown key 'attention_backned' in section 'model' (did you mean "
                "'attention_backend'?)"
            ),
        ),
        (
            "kind: digits",
            "kind: digits\n  micro_batch_size: 3",
            (
                "r.yaml:8:3: unknown key 'micro_batch_size' in section 'data' (it belongs into "
                "'schedule.micro_batch_size' or 'evaluation.micro_batch_size')"
            ),
        ),
        (
            "launch:",
            "lunch: {}\nlaunch:",
            "r.yaml:2:1: unknown key 'lunch' (did you mean 'launch'?",
        ),
        ("launch:", "zzz: 1\nlaunch:", "r.yaml:2:1: unknown key 'zzz' (known here: name, descrip"),
        (
            "lr: 2e-4",
            'lr: "2e-4"',
            (
                "r.yaml:13:7: optimizer.lr: expected a number, got the text '2e-4' (it is a text: "
                "remove the quotes)"
            ),
        ),
        ("lr: 2e-4", "lr: fast", "r.yaml:13:7: optimizer.lr: expected a number, got the text 'fa"),
        ("lr: 2e-4", "lr: 0", "r.yaml:13:7: optimizer.lr: expected more than 0"),
        ("lr: 2e-4", "lr: 1e999", "r.yaml:13:7: optimizer.lr: expected a finite number"),
        ("lr: 2e-4", "lr:", "r.yaml:13:3: optimizer.lr: expected a number, got null"),
        ("lr: 2e-4", "lr: true", "r.yaml:13:7: optimizer.lr: expected a number, got true"),
        ("size: 4", "size: 4.5", "r.yaml:10:21: schedule.micro_batch_size: expected an integer"),
        ("size: 4", "size: -4", "r.yaml:10:21: schedule.micro_batch_size: expected more than 0"),
        (
            "train_iters: 100",
            "train_iters: 100\n  manual_gc: yes",
            (
                "r.yaml:10:14: schedule.manual_gc: expected true or false, got the text 'yes' "
                "(YAML 1.2 has no 'yes' for a truth value: write true)"
            ),
        ),
        (
            "train_iters: 100",
            "train_iters: 100\n  manual_gc: 1",
            "r.yaml:10:14: schedule.manual_gc: expected true or false, got 1",
        ),
        (
            "  preset: flux_tiny",
            "  preset: flux_tiny\n  fused_mlp: true",
            "r.yaml:6:14: model.fused_mlp: expected one of off, on, auto, got true (write on)",
        ),
        (
            "  preset: flux_tiny",
            "  preset: flux_tiny\n  attention_backend: FUSED",
            (
                "r.yaml:6:22: model.attention_backend: expected one of auto, flash, fused, "
                "unfused, local, got the text 'FUSED'"
            ),
        ),
        (
            "  preset: flux_tiny",
            "  preset: flux_tiny\n  axes_dim: 3",
            "r.yaml:6:13: model.axes_dim: expected a list, got 3",
        ),
        ("model:\n  preset: flux_tiny", "model: tiny", "r.yaml:4:8: model: expected a mapping"),
        ("device: cpu", "device: cpu\nname: a/b", "r.yaml:2:7: name: expected letters, digits"),
        (
            "nproc_per_node: 2",
            "nproc_per_node: 2\n  master_port: 80",
            "r.yaml:4:16: launch.master_port: expected at least 1024, got 80",
        ),
        (
            "nproc_per_node: 2",
            "nproc_per_node: 2\n  environment: {A: 1}",
            "r.yaml:4:20: launch.environment.A: expected text, got 1",
        ),
    ],
)
def test_one_fault(faults: Faults, small: str, old: str, new: str, fault: str) -> None:
    assert old in small
    found = faults(small.replace(old, new))
    assert len(found) == 1, found
    assert found[0].startswith(fault)


@pytest.mark.parametrize("blank", ["", '""', '"  "', "null", "~"])
def test_a_blank_attention_backend_is_no_choice(faults: Faults, small: str, blank: str) -> None:
    """Megatron takes a blank one for auto; in a recipe someone forgot to choose."""
    (found,) = faults(
        small.replace("preset: flux_tiny", f"preset: flux_tiny\n  attention_backend: {blank}")
    )
    assert "model.attention_backend: expected one of auto, flash, fused, unfused, lo" in found
    assert found.endswith("(leave the key out for auto)")


def test_blanks_around_an_attention_backend_do_not_count(load_text: Load) -> None:
    loaded = load_text(overrides=['model.attention_backend=" flash "'])
    assert loaded.recipe.model.attention_backend == "flash"


def test_faults_of_every_kind_come_together(faults: Faults, small: str) -> None:
    text = (
        small.replace("device: cpu", "device: cpu\ndevice: cpu")
        .replace("kind: digits", "kind: digits\n  path: ${NOT_SET}\n  vae_latent_mode: resample")
        .replace("lr: 2e-4", 'lr: "2e-4"\n  min_lr: 1')
    )
    found = faults(text, ["compile.strategy=stack", "x"])
    places = [line.split(": ")[0] for line in found]
    assert places == [
        "r.yaml:2:1",  # duplicate
        "r.yaml:8:3",  # vae_scale is not there
        "r.yaml:8:3",  # vae_shift neither
        "r.yaml:9:9",  # variable
        "r.yaml:16:7",  # text for a number; min_lr is not compared with it
        "override 'x'",
        "override 'compile.strategy=stack':1:18",
    ]
