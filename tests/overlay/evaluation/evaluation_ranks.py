# SPDX-License-Identifier: Apache-2.0
"""One rank of evaluations of 29,696 samples: ``evaluation_ranks.py RANK RANKS FILE``."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch
from evaluation_support import Model, Split, forward_step

from mxflux.evaluation.budget import Remainder, plan_evaluation
from mxflux.evaluation.errors import EvaluationError
from mxflux.evaluation.evaluator import Evaluator

TOTAL = 29_696
#: Name -> how the remainder is treated, micro-batch size, batches that rank 1 lacks.
CASES: dict[str, tuple[Remainder, int, int]] = {
    "whole": ("refuse", 512, 0),
    "pad": ("pad", 1_000, 0),
    "mask": ("mask", 1_000, 0),
    "short": ("refuse", 512, 2),
}


def main(rank: int, ranks: int, store: str) -> None:
    """Run every case and write what this rank saw."""
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{store}", rank=rank, world_size=ranks
    )
    answers = {name: evaluate(rank, ranks, *case) for name, case in CASES.items()}
    torch.distributed.destroy_process_group()
    Path(f"{store}.{rank}").write_text(json.dumps(answers))


def evaluate(
    rank: int, ranks: int, remainder: Remainder, size: int, missing: int
) -> dict[str, Any]:
    """Result of one evaluation, or its error."""
    budget = plan_evaluation(
        samples=TOTAL, micro_batch_size=size, data_parallel_size=ranks, remainder=remainder
    )
    split = Split(TOTAL, size, rank=rank, ranks=ranks, endless=remainder == "mask")
    split.stop -= missing * size if rank == 1 else 0
    model = Model()
    evaluator = Evaluator(model, forward_step(rank), lambda: split, budget)
    try:
        result = evaluator.run(1, prefetch_next=False)
    except EvaluationError as error:
        return {"error": str(error)}
    return {
        "loss": result.loss.hex(),
        "count": result.count,
        "timesteps": result.per_timestep_count,
        "batches": len(model.calls),
    }


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
