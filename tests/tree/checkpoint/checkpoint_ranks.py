# SPDX-License-Identifier: Apache-2.0
"""What the checkpoint tests run on each rank (see support.ranks)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from checkpoint_run import Batches, Run, draws, start
from megatron.core.optimizer import ChainedOptimizer, OptimizerConfig
from megatron.core.optimizer.optimizer import FP32Optimizer

from mxflux.checkpoint.distributed import begin_save
from mxflux.checkpoint.errors import CheckpointError
from mxflux.checkpoint.hyperparameters import adopt_ranges
from mxflux.checkpoint.together import gather
from mxflux.checkpoint.training import AsyncSaves
from mxflux.checkpoint.training_state import rank_objects, training_state, versions

if TYPE_CHECKING:
    from collections.abc import Callable

FORMATS = ("dp_reshardable", "fully_reshardable")


def save_on_two(root: str) -> dict[str, Any]:
    """Train, save in both formats and in the background, train on; resume and train the same."""
    start()
    out: dict[str, Any] = {}
    run = Run()
    run.train(3)
    for kind in FORMATS:
        run.save(f"{root}/{kind}", optimizer_format=kind)
    out["again"] = _error(lambda: run.save(f"{root}/{FORMATS[0]}"))
    out["format"] = _error(lambda: run.save(f"{root}/no", optimizer_format="zero"))
    saves = AsyncSaves()
    run.save(f"{root}/background", saves=saves)
    out["not yet"] = Path(f"{root}/background/latest").exists()
    out["continued"] = run.train(3)  # while the save goes on: it must not see these steps
    run.save(f"{root}/background after", saves=saves)  # waits for the first, and publishes it
    out["waited for"] = Path(f"{root}/background/latest").exists()
    out["published"] = [str(path) for path in saves.close()]
    out["missed"] = _missed(run, Path(root, "missed"))
    for kind in (*FORMATS, "background"):
        out[kind] = resumed(f"{root}/{kind}", 3)
    return {**out, **_generators(root), **_retention(root)}


def _missed(run: Run, root: Path) -> tuple[str, str, bool]:
    """A file that rank 1 did not see, what publishing says, and whether it is published."""
    state = {**training_state(run.parts, FORMATS[0]), **rank_objects(run.parts)}
    save = begin_save(root, 1, state, run.config.architecture)
    save.write(state)
    described = save.describe_share()
    name = sorted(described)[0]
    if torch.distributed.get_rank() == 1:
        del described[name]
    return gather(name)[1], _error(lambda: save.publish(described)), save.final.exists()


def resumed(path: str, steps: int, **options: Any) -> dict[str, Any]:
    """Losses after resuming in a fresh run, the state of its schedule, and its weights."""
    run = Run(**options)
    loaded = run.load(path)
    assert loaded.record is not None
    out: dict[str, Any] = {
        "restored": loaded.restored,
        "samples": loaded.record.progress.consumed_samples,
        "lr": run.optimizer.param_groups[0]["lr"],
        "position": run.loader.position,
        "losses": run.train(steps),
    }
    return {**out, "weights": run.weights()}


def reshard_to_one(root: str) -> dict[str, Any]:
    """Resume on one rank what two saved, and save it there; what is refused."""
    start()
    out: dict[str, Any] = {kind: resumed(f"{root}/{kind}", 3) for kind in FORMATS}
    run = Run()
    run.load(f"{root}/{FORMATS[0]}/checkpoints")
    for kind in FORMATS:
        run.save(f"{root}/one_{kind}", optimizer_format=kind)
    path = f"{root}/{FORMATS[0]}/latest"
    out["fixed loader"] = _error(lambda: Run(loader=Batches).load(path))
    out["generators"] = _error(lambda: Run(reseed=False).load(path))
    out["buckets"] = _error(lambda: Run(bucket_size=5_000).load(path))
    out["weights"] = _start_from_weights(path)
    return {**out, "other constants": _other_constants(path)}


def reshard_to_two(root: str) -> dict[str, Any]:
    """Resume on two ranks what one saved; then on two tensor-parallel ranks."""
    start()
    out: dict[str, Any] = {kind: resumed(f"{root}/one_{kind}", 3) for kind in FORMATS}
    start(2)
    path = f"{root}/{FORMATS[0]}/latest"
    out["tensor"] = _error(lambda: Run(tensor_parallel=2).load(path))
    out["tensor weights"] = _start_from_weights(path, tensor_parallel=2)
    run = Run(tensor_parallel=2)
    run.load(f"{root}/{FORMATS[1]}")
    run.save(f"{root}/tensor_two", optimizer_format=FORMATS[1])
    return out


def _start_from_weights(path: str, **options: Any) -> dict[str, Any]:
    run = Run(**options)
    loaded = run.load(path, model_only=True)
    return {"restored": loaded.restored, "position": run.loader.position, **run.weights()}


def resume_chained(root: str) -> dict[str, Any]:
    """The same with two chained optimizers, and what is refused to one."""
    start()
    run = Run(chained=True)
    out: dict[str, Any] = {"optimizers": len(run.optimizer.chained_optimizers)}
    run.train(3)
    for kind in FORMATS:
        run.save(f"{root}/{kind}", optimizer_format=kind)
    out["continued"] = run.train(3)
    for kind in FORMATS:
        path = f"{root}/{kind}"
        out[kind] = resumed(path, 3, chained=True)
        out[kind]["other constants"] = _other_constants(path, chained=True)
    out["unchained"] = _error(lambda: Run().load(f"{root}/fully_reshardable"))
    return {**out, "nested": _nested_chains()}


def _nested_chains() -> dict[str, Any]:
    """What adopting makes of the states of chains in chains, and what it refuses."""
    saved, run = _nested(2e-3, 1).state_dict(), _nested(1e-3, 1)
    out: dict[str, Any] = {"notes": adopt_ranges(run, saved)}
    run.load_state_dict(saved)  # Megatron 0.19 raises where a range is another
    deep = _nested(2e-3, 2).state_dict()
    adopt_ranges(_nested(1e-3, 2), deep)
    groups = [*run.param_groups, *(state["param_groups"][0] for state in [*deep[0], deep[1]])]
    out["max_lr"] = [group["max_lr"] for group in groups]
    out["too few"] = _error(lambda: adopt_ranges(run, saved[:1]))
    return out


def _nested(max_lr: float, inner: int) -> ChainedOptimizer:
    """A chain of a chain of ``inner`` optimizers, and one more."""
    config = OptimizerConfig(optimizer="adam", lr=max_lr)
    marks = {"wd_mult": 1.0, "lr_mult": 1.0, "is_expert_parallel": False, "is_decoupled_lr": False}

    def single() -> FP32Optimizer:
        group = {"params": [torch.nn.Parameter(torch.ones(2))], "max_lr": max_lr, **marks}
        return FP32Optimizer(torch.optim.Adam([group]), config, lambda *_: None)

    return ChainedOptimizer([ChainedOptimizer([single() for _ in range(inner)]), single()])


def _other_constants(path: str, *, chained: bool = False) -> dict[str, Any]:
    """Resume with another learning rate and beta; what is in effect, before and after a step."""
    run = Run(max_lr=1e-3, adam_beta2=0.9, chained=chained)
    notes = run.load(path).notes
    fresh = Run(max_lr=1e-3)
    fresh.scheduler.step(increment=3)
    groups = [run.optimizer.param_groups[0], fresh.optimizer.param_groups[0]]
    before = {"betas": groups[0]["betas"], "lr": [group["lr"] for group in groups]}
    run.train(1)
    fresh.scheduler.step(increment=1)
    groups = [run.optimizer.param_groups[0], fresh.optimizer.param_groups[0]]
    return {"notes": notes, **before, "next": [group["lr"] for group in groups]}


def _generators(root: str) -> dict[str, Any]:
    run = Run(reseed=False)
    run.train(1)
    run.save(f"{root}/random")
    following = [*run.train(2), *draws()]
    torch.manual_seed(999)
    again = Run(reseed=False)
    again.load(f"{root}/random")
    return {"following": following, "restored": [*again.train(2), *draws()]}


def _retention(root: str) -> dict[str, Any]:
    run = Run()
    for _ in range(4):
        run.train(1)
        run.save(f"{root}/kept", keep=2)
    return {"kept": sorted(p.name for p in Path(root, "kept", "checkpoints").iterdir())}


def _error(action: Callable[[], object]) -> str:
    try:
        action()
    except (CheckpointError, OSError, ValueError) as error:
        return f"{type(error).__name__}: {error}"
    return "no error"


def write_for_others(root: str) -> dict[str, Any]:
    """Train and save in both formats with this release; how training would go on."""
    start()
    run = Run()
    run.train(2)
    for kind in FORMATS:
        run.save(f"{root}/{kind}", optimizer_format=kind)
    return {"release": versions()["megatron-core"], "continued": run.train(2)}


def read_of_others(root: str) -> dict[str, Any]:
    """Resume with this release what another one wrote, or say why not."""
    start()
    out: dict[str, Any] = {"release": versions()["megatron-core"]}
    for kind in FORMATS:
        out[kind] = _error(lambda k=kind: out.update({f"{k} losses": _losses(f"{root}/{k}")}))
    return out


def _losses(path: str) -> list[float]:
    losses: list[float] = resumed(path, 2)["losses"]
    return losses
