# SPDX-License-Identifier: Apache-2.0
"""torch.compile of a wrapped model: what becomes one graph, and the proof that it did."""

from __future__ import annotations

import importlib
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from mxflux.fusions.gates import GateMode

from .errors import CheckError, SetupError

if TYPE_CHECKING:
    from collections.abc import Callable

    from mxflux.flux.model import FluxModel
    from mxflux.fusions.gates import FusionGates
    from mxflux.recipe.schema import Compile, Recipe

STACKS = ("double_stack", "single_stack", "stack")
GATE_OPERATORS = {
    "fused_qk_norm_rope": "norm_rope",
    "fused_ln_modulate": "ln_modulate",
    "fused_gate_residual": "gate_residual",
    "fused_qkv_prologue": "qkv_prologue",
    "fused_mlp": "mlp",
}
"""Gate -> what the names of its operators have in common."""


def check_compile(recipe: Recipe) -> None:
    """Raise SetupError for a strategy that cannot run with the rest of the recipe."""
    settings, model = recipe.compile, recipe.model
    if not settings.enable:
        return
    te = model.transformer_impl != "local"
    if te and recipe.precision.fp4:
        raise SetupError(
            "compile.enable with precision.fp4 and model.transformer_impl: transformer_engine: "
            "TE's FP4 autocast is global state that a compiled graph does not see. Disable one"
        )
    if settings.strategy == "full_dit" and not te:
        raise SetupError(
            "compile.strategy: full_dit is for model.transformer_impl: transformer_engine; "
            "with local use per_block"
        )
    if settings.strategy == "whole_model" and recipe.parallel.overlap_param_gather:
        raise SetupError(
            "compile.strategy: whole_model leaves no place for parallel.overlap_param_gather to "
            "wait for parameters: use per_block, or switch the overlap off"
        )
    if settings.strategy in STACKS and model.recompute_granularity == "full":
        raise SetupError(
            f"compile.strategy: {settings.strategy} with model.recompute_granularity: full would "
            "recompute nothing: use per_block"
        )


class TracedOperators:
    """A compiler that also notes which fused operators the graphs contain."""

    def __init__(self, settings: Compile) -> None:
        self.settings = settings
        self.graphs = 0
        self.operators: dict[str, int] = {}

    def __call__(self, graph: torch.fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
        """Compile one graph with the recipe's backend."""
        self.graphs += 1
        for part in graph.modules():
            for node in getattr(getattr(part, "graph", None), "nodes", ()):
                self._note(str(node.target))
        if self.settings.backend != "inductor":
            from torch._dynamo.backends.registry import lookup_backend

            compiled: Callable[..., Any] = lookup_backend(self.settings.backend)(graph, inputs)
            return compiled
        from torch._inductor import list_mode_options
        from torch._inductor.compile_fx import compile_fx

        patches = dict(list_mode_options(self.settings.mode))
        patches["emulate_precision_casts"] = self.settings.emulate_precision_casts
        result: Any = compile_fx(graph, inputs, config_patches=patches)
        return result  # type: ignore[no-any-return]

    def _note(self, target: str) -> None:
        if "mxflux" in target:
            self.operators[target] = self.operators.get(target, 0) + 1

    def count(self, gates: FusionGates) -> None:
        """Record for every gate whether a graph holds an operator of its kind.

        Raises CheckError when nothing was compiled at all (TORCHDYNAMO_DISABLE, for example).
        """
        if not self.graphs:
            raise CheckError("first step: compile.enable, but torch.compile compiled nothing")
        for gate in gates.gates():
            kind = GATE_OPERATORS.get(gate.key, gate.key)
            if gate.mode is not GateMode.OFF and any(kind in name for name in self.operators):
                gate.count_traced()


def compile_model(recipe: Recipe, model: FluxModel) -> TracedOperators | None:
    """Compile in place, after DDP has wrapped the model; None when the recipe has it off.

    State-dict keys stay as they are. Layers of one kind may each need a graph of their own, and
    a limit that is hit raises instead of falling back to eager.
    """
    settings = recipe.compile
    if not settings.enable:
        return None
    check_compile(recipe)
    traced = TracedOperators(settings)
    dynamo: Any = importlib.import_module("torch._dynamo.config")
    dynamo.recompile_limit = max(dynamo.recompile_limit, 4 * model.config.num_layers)
    dynamo.fail_on_recompile_limit_hit = True
    compiled = partial(torch.compile, backend=traced, fullgraph=settings.fullgraph, dynamic=False)
    if settings.strategy == "per_block":
        for layer in model.transformer.layers:
            layer.forward = compiled(layer.forward)
    elif settings.strategy == "whole_model":
        model.__dict__["forward"] = compiled(model.forward)
    elif settings.strategy == "full_dit":
        model.transformer.__dict__["forward"] = compiled(model.transformer.forward)
    else:
        _compile_stacks(model, settings.strategy, compiled)
    return traced


def _compile_stacks(model: FluxModel, strategy: str, compiled: Callable[..., Any]) -> None:
    joint, total = model.config.num_joint_layers, model.config.num_layers
    ranges = {"double_stack": [(0, joint)], "single_stack": [(joint, total)]}
    for start, stop in ranges.get(strategy, [(0, joint), (joint, total)]):
        run = partial(model.transformer.run_blocks, start, stop)
        model.transformer.stacks[start] = (stop, compiled(run))


def compiled_roots(recipe: Recipe, model: FluxModel) -> list[torch.nn.Module]:
    """Modules inside whose compiled forward no hook of a child may run."""
    if not recipe.compile.enable:
        return []
    if recipe.compile.strategy == "per_block":
        return list(model.transformer.layers)
    return [model.transformer]
