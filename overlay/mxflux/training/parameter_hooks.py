# SPDX-License-Identifier: Apache-2.0
"""When DDP's pre-forward hooks gather parameters, with ``overlap_param_gather``."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import torch
    from megatron.core.distributed import DistributedDataParallel


class ParameterHooks:
    """Switches the hooks as Megatron's training loop does.

    They are off for the first step, so that an error in one rank's weights is not gathered onto
    the others unseen, and while the parameters are read: in evaluation and in a checkpoint.
    Without overlap_param_gather nothing here has an effect. Below each of ``roots``, whose forward
    is compiled, the root's own hook waits for the parameters of all its children.
    """

    def __init__(self, ddp: DistributedDataParallel, roots: Sequence[torch.nn.Module] = ()) -> None:
        self.ddp = ddp
        self.roots = roots
        self.used = ddp.ddp_config.overlap_param_gather
        self._on = True
        self._first_step_done = False

    def before_training(self) -> None:
        """Off until the first step is done (DDP's constructor switched them on)."""
        self._disable(param_sync=False)
        self._first_step_done = False

    def after_step(self) -> None:
        """On from the first step's end."""
        self._first_step_done = True
        self._enable()

    @contextlib.contextmanager
    def parameters_complete(self) -> Iterator[None]:
        """All parameters gathered and left alone within the block."""
        self._disable(param_sync=True)
        try:
            yield
        finally:
            if self._first_step_done:
                self._enable()

    def _disable(self, *, param_sync: bool) -> None:
        if self.used and self._on:
            self.ddp.disable_forward_pre_hook(param_sync=param_sync)
            self._on = False

    def _enable(self) -> None:
        if self.used and not self._on:
            self.ddp.enable_forward_pre_hook()
            self._on = True
            for root in self.roots:
                self._gather_at(root)

    def _gather_at(self, root: torch.nn.Module) -> None:
        handles = self.ddp.remove_forward_pre_hook_handles
        for module in root.modules():
            handles[module].remove()
        wait = self.ddp._make_forward_pre_hook()

        def wait_for_all(module: torch.nn.Module, *_: object) -> None:
            for child in module.modules():
                wait(child)

        handles[root] = root.register_forward_pre_hook(wait_for_all)
