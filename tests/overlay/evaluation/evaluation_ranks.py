# SPDX-License-Identifier: Apache-2.0
"""One rank of an evaluation of 29,696 samples: ``evaluation_ranks.py RANK RANKS FILE ...``."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
from evaluation_support import Model, Split, forward_step

from mxflux.evaluation.budget import plan_evaluation
from mxflux.evaluation.errors import EvaluationError
from mxflux.evaluation.evaluator import Evaluator

TOTAL = 29_696


def main(rank: int, ranks: int, store: str, missing: int, remainder: str, size: int) -> None:
    """Evaluate; rank 1 lacks its last ``missing`` batches."""
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{store}", rank=rank, world_size=ranks
    )
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
        answer = {"error": str(error)}
    else:
        answer = {
            "loss": result.loss.hex(),
            "count": result.count,
            "timesteps": result.per_timestep_count,
            "batches": len(model.calls),
        }
    torch.distributed.destroy_process_group()
    Path(f"{store}.{rank}").write_text(json.dumps(answer))


if __name__ == "__main__":
    first, second, path, lacking, policy, width = sys.argv[1:]
    main(int(first), int(second), path, int(lacking), policy, int(width))
