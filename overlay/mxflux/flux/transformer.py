# SPDX-License-Identifier: Apache-2.0
"""The stack of joint and single blocks, with its quantization context and recomputation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from megatron.core import tensor_parallel
from megatron.core.extensions import transformer_engine as te_extension
from megatron.core.transformer.transformer_block import TransformerBlock

from .precision import get_fp8_context, get_layer_context

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from .rope import RotaryTable

Streams = tuple["Tensor", "Tensor | None"]
Stack = tuple[int, "Callable[..., Streams]"]
"""The block after a compiled run of blocks, and the run itself."""


class FluxTransformerBlock(TransformerBlock):
    """Megatron's TransformerBlock (construction, checkpoint keys) with Flux's forward."""

    def _build_layers(self) -> None:
        """Local linears quantize by themselves: TE's contexts have no part in building them."""
        if self.config.transformer_impl != "local":
            super()._build_layers()
            return
        asked = self.config.fp8, self.config.fp4
        self.config.fp8 = self.config.fp4 = None
        try:
            super()._build_layers()
        finally:
            self.config.fp8, self.config.fp4 = asked

    def forward(
        self,
        hidden_states: Tensor,
        context: Tensor,
        conditioning: Tensor,
        table: RotaryTable,
    ) -> Tensor:
        """Run all blocks: image [S_img,B,H], text [S_txt,B,H] -> [S_txt+S_img,B,H].

        ``conditioning`` is [B,H], ``table`` covers [text; image].
        """
        streams: Streams = (hidden_states, context)
        with self.offload_context, get_fp8_context(self.config):
            start = 0
            while start < len(self.layers):
                if start in self.stacks:
                    start, run = self.stacks[start]
                    streams = run(*streams, conditioning, table)
                    continue
                stop = min(start + self._chunk_length(), len(self.layers))
                chunk = self._chunk(start, stop, table)
                if self._recomputes(start):
                    streams = self._checkpoint(chunk, streams, conditioning)
                else:
                    streams = chunk(*streams, conditioning)
                start = stop
        return streams[0]

    @property
    def stacks(self) -> dict[int, Stack]:
        """First block of a run of blocks -> what runs it in place of the loop: torch.compile's."""
        found: dict[int, Stack] = self.__dict__.setdefault("_stacks", {})
        return found

    def run_blocks(
        self, start: int, stop: int, hidden: Tensor, context: Tensor | None,
        conditioning: Tensor, table: RotaryTable,
    ) -> Streams:  # fmt: skip
        """Blocks ``start`` to ``stop`` - 1 in turn, each in its own quantization context."""
        for layer in self.layers[start:stop]:
            with get_layer_context(self.config, layer.layer_number - 1):
                hidden, context = layer(hidden, context, conditioning, table)
        return hidden, context

    def _chunk(self, start: int, stop: int, table: RotaryTable) -> Callable[..., Streams]:
        def run(hidden: Tensor, context: Tensor | None, conditioning: Tensor) -> Streams:
            return self.run_blocks(start, stop, hidden, context, conditioning, table)

        return run

    def _chunk_length(self) -> int:
        uniform = self._recomputes_full() and self.config.recompute_method == "uniform"
        return int(self.config.recompute_num_layers) if uniform else 1

    def _recomputes_full(self) -> bool:
        return bool(self.training and self.config.recompute_granularity == "full")

    def _recomputes(self, start: int) -> bool:
        if not self._recomputes_full():
            return False
        return self.config.recompute_method == "uniform" or start < self.config.recompute_num_layers

    def _checkpoint(
        self, chunk: Callable[..., Streams], streams: Streams, conditioning: Tensor
    ) -> Streams:
        distribute = self.config.distribute_saved_activations
        quantized = self.config.fp8 or self.config.fp4 or self.config.fp6
        if quantized and self.config.transformer_impl != "local":
            # TE's own checkpoint also replays its quantization state.
            out: Streams = te_extension.te_checkpoint(
                chunk,
                distribute,
                tensor_parallel.random.get_cuda_rng_tracker,
                self.pg_collection.tp,
                *streams,
                conditioning,
            )
        else:
            out = tensor_parallel.checkpoint(chunk, distribute, *streams, conditioning)
        return out
