# SPDX-License-Identifier: Apache-2.0
"""How many samples an evaluation reads: width, iterations, and what does not divide. No torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from .errors import EvaluationError

if TYPE_CHECKING:
    from collections.abc import Callable

Remainder = Literal["refuse", "pad", "mask"]
REMAINDERS = ("refuse", "pad", "mask")


@dataclass(frozen=True)
class EvalBudget:
    """One evaluation: ``samples`` are counted, ``capacity`` are read, equally by every rank."""

    samples: int
    iterations: int
    num_microbatches: int
    micro_batch_size: int
    data_parallel_size: int
    num_workers: int = 1
    remainder: Remainder = "refuse"

    @property
    def width(self) -> int:
        """Samples of one iteration over all ranks: Megatron's eval_global_batch_size."""
        return self.num_microbatches * self.micro_batch_size * self.data_parallel_size

    @property
    def capacity(self) -> int:
        """Samples read: iterations x micro-batches x micro-batch size x data-parallel ranks."""
        return self.iterations * self.width

    @property
    def batches_per_rank(self) -> int:
        """Micro-batches that each rank takes from its loader."""
        return self.iterations * self.num_microbatches

    @property
    def filler(self) -> int:
        """Samples read that must not count; 0 unless ``remainder`` is pad or mask."""
        return self.capacity - self.samples

    def __str__(self) -> str:
        text = (
            f"{self.samples} samples = {self.iterations} iterations x {self.num_microbatches} "
            f"micro-batches x {self.micro_batch_size} (evaluation micro-batch size) x "
            f"{self.data_parallel_size} ranks"
        )
        return text + (f" - {self.filler} {self.remainder}" if self.filler else "")


def get_eval_micro_batch_size(args: Any) -> int:
    """Micro-batch size of evaluation of Megatron's args: that of training where there is none.

    ``eval_micro_batch_size`` exists since megatron-core 0.18; before, it is what a caller sets.
    """
    own = getattr(args, "eval_micro_batch_size", None)
    return int(args.micro_batch_size if own is None else own)


def get_eval_global_batch_size(args: Any) -> int:
    """Samples of one evaluation iteration over all ranks; that of training where none is set."""
    own = getattr(args, "eval_global_batch_size", None)
    return int(args.global_batch_size if own is None else own)


def get_eval_num_microbatches(args: Any) -> int:
    """Micro-batches of one evaluation iteration on one rank, for megatron-core 0.16 to 0.19.

    eval_global_batch_size // (eval_micro_batch_size * ranks that read different data). Since 0.19
    the shards of generalised tensor parallelism (gtp_weight_remat_size) read different data, too.
    Raises EvaluationError when it does not divide, or before args know their data-parallel size.
    """
    if not getattr(args, "data_parallel_size", None):
        raise EvaluationError(
            "args.data_parallel_size is not set yet: derive the evaluation after Megatron's "
            "arguments are validated and its parallel state is initialized"
        )
    ranks = args.data_parallel_size * getattr(args, "gtp_weight_remat_size", 1)
    return _num_microbatches(
        get_eval_global_batch_size(args), get_eval_micro_batch_size(args), ranks
    )


def initialized_data_parallel_size() -> int:
    """Data-parallel size of Megatron's parallel state. Raises EvaluationError before it exists."""
    from megatron.core import parallel_state

    if not parallel_state.model_parallel_is_initialized():
        raise EvaluationError(
            "the number of evaluation iterations depends on the data-parallel size, which is known "
            "after megatron.core.parallel_state.initialize_model_parallel: derive it after that"
        )
    return int(parallel_state.get_data_parallel_world_size())


def assert_val_worker_divisibility(
    samples: int, micro_batch_size: int, num_workers: int, data_parallel_size: int
) -> int:
    """Batches per rank when ``samples`` divide into whole batches of every worker of every rank.

    A loader without workers shards as one with a single worker does, hence max(1, workers).
    Raises EvaluationError naming the numbers and the nearest shapes that fit.
    """
    workers = max(1, num_workers)
    left = samples % (micro_batch_size * workers * data_parallel_size)
    if left:
        advice = _advice(samples, micro_batch_size, workers * data_parallel_size)
        raise EvaluationError(
            f"{samples} validation samples do not divide into batches of {micro_batch_size} for "
            f"{data_parallel_size} ranks x {workers} workers: {samples} % ({micro_batch_size} * "
            f"{workers} * {data_parallel_size}) = {left}. {advice}"
        )
    return samples // (data_parallel_size * micro_batch_size)


def plan_evaluation(
    *,
    samples: int | None = None,
    iterations: int | None = None,
    micro_batch_size: int,
    data_parallel_size: int,
    global_batch_size: int | None = None,
    num_workers: int = 1,
    remainder: Remainder = "refuse",
) -> EvalBudget:
    """Budget of an evaluation over ``samples`` of a split, or over ``iterations`` of its start.

    ``global_batch_size`` is that of evaluation (default: one micro-batch a rank). With
    ``remainder`` "refuse" everything has to divide. "pad": what a rank's loader cannot fill is
    filled up with copies that do not count. "mask": the loader reads on past its share, and what
    lies past it does not count. Both count exactly ``samples``.
    Raises EvaluationError for a shape that cannot, with the shapes that can.
    """
    if remainder not in REMAINDERS:
        raise EvaluationError(f"remainder={remainder!r}: choose from {', '.join(REMAINDERS)}")
    if (samples is None) == (iterations is None):
        raise EvaluationError("give either evaluation.samples or evaluation.iters, not both")
    for name, value in (("samples", samples), ("iters", iterations),
                        ("micro_batch_size", micro_batch_size),
                        ("data_parallel_size", data_parallel_size)):  # fmt: skip
        if value is not None and value < 1:
            raise EvaluationError(f"evaluation {name}={value} must be positive")
    width = global_batch_size or micro_batch_size * data_parallel_size
    microbatches = _num_microbatches(width, micro_batch_size, data_parallel_size)
    if samples is None:
        assert iterations is not None
        samples = iterations * width
    if remainder == "refuse":
        batches = assert_val_worker_divisibility(
            samples, micro_batch_size, num_workers, data_parallel_size
        )
        if batches % microbatches:
            raise EvaluationError(
                f"{samples} validation samples are {batches} batches a rank, not whole iterations "
                f"of {microbatches} micro-batches (evaluation global_batch_size={width}): set "
                f"it to {micro_batch_size * data_parallel_size}, or evaluation.remainder to pad "
                "or mask"
            )
    return EvalBudget(
        samples, -(-samples // width), microbatches, micro_batch_size, data_parallel_size,
        num_workers, remainder,
    )  # fmt: skip


def budget_of_args(
    args: Any,
    *,
    samples: int | None = None,
    num_workers: int = 1,
    remainder: Remainder = "refuse",
    data_parallel_size: Callable[[], int] = initialized_data_parallel_size,
) -> EvalBudget:
    """Budget of Megatron's args, of any release: over ``samples``, else over args.eval_iters."""
    return plan_evaluation(
        samples=samples,
        iterations=None if samples is not None else int(args.eval_iters),
        micro_batch_size=get_eval_micro_batch_size(args),
        global_batch_size=get_eval_global_batch_size(args),
        data_parallel_size=data_parallel_size() * getattr(args, "gtp_weight_remat_size", 1),
        num_workers=num_workers,
        remainder=remainder,
    )


def _num_microbatches(width: int, micro_batch_size: int, ranks: int) -> int:
    if width % (micro_batch_size * ranks):
        raise EvaluationError(
            f"evaluation global_batch_size={width} is not a multiple of the evaluation "
            f"micro_batch_size {micro_batch_size} x {ranks} ranks = {micro_batch_size * ranks}"
        )
    return width // (micro_batch_size * ranks)


def _advice(samples: int, micro_batch_size: int, readers: int) -> str:
    declare = "evaluation.remainder: pad or mask counts exactly all the same"
    if samples % readers:
        return f"No micro-batch size divides it among {readers} readers; {declare}."
    fitting = [size for size in _divisors(samples // readers) if size <= 4 * micro_batch_size]
    near = sorted(sorted(fitting, key=lambda size: abs(size - micro_batch_size))[:4])
    return f"Micro-batch sizes that fit: {', '.join(map(str, near))}; or {declare}."


def _divisors(number: int) -> list[int]:
    return [n for n in range(1, number + 1) if number % n == 0]
