# SPDX-License-Identifier: Apache-2.0
"""What a step benchmark runs: sizes, inputs, and the least work that they cost."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from mxflux.flux.architecture import PRESETS, FluxArchitecture
from mxflux.training.flops import training_flops

if TYPE_CHECKING:
    from collections.abc import Sequence

Tensor = torch.Tensor
KINDS = ("joint", "single")


@dataclass(frozen=True)
class Workload:
    """One step: an architecture, B samples of `image` + `text` tokens, on a device."""

    architecture: FluxArchitecture
    batch: int
    image: int
    text: int
    device: torch.device
    dtype: torch.dtype = torch.bfloat16

    @classmethod
    def of(
        cls, preset: str, blocks: Sequence[str], batch: int, tokens: tuple[int, int], device: str
    ) -> Workload:
        """blocks: one block of each kind named ("joint", "single"), or "all" of the preset.

        tokens: image, text; the image is square. Raises ValueError naming what does not fit.
        """
        if preset not in PRESETS:
            raise ValueError(f"preset {preset!r} is unknown. Choose from: {', '.join(PRESETS)}.")
        image, text = tokens
        side = round(image**0.5)
        if side * side != image or text < 1 or batch < 1:
            raise ValueError(f"tokens {image}+{text} of {batch} samples: the image must be square")
        arch = PRESETS[preset]
        if list(blocks) != ["all"]:
            counts = {kind: blocks.count(kind) for kind in KINDS}
            unknown = sorted(set(blocks) - set(KINDS))
            if unknown or not sum(counts.values()):
                raise ValueError(f"blocks {','.join(blocks)}: name joint, single, or only all")
            arch = dataclasses.replace(
                arch, num_joint_layers=counts["joint"], num_single_layers=counts["single"]
            )
        return cls(arch, batch, image, text, torch.device(device))

    @property
    def tokens(self) -> int:
        """Tokens of a step, both streams, all samples."""
        return self.batch * (self.image + self.text)

    @property
    def flops(self) -> int:
        """Operations of forward and backward: matrix products only."""
        return self.batch * training_flops(self.architecture, self.image, self.text)

    @property
    def floor_bytes(self) -> int:
        """The least that the operations between the GEMMs of the blocks move through memory.

        In units U of one [tokens, hidden] tensor, forward + backward, each tensor read and written
        once: norm and modulation 2 + 3, QK-norm and rotation 6 + 8, gated residual with the second
        norm of a joint block 4 + 6, GELU 8 + 12 (4 U wide), last gated residual 3 + 3 (single: one
        more read of the attention's output).
        """
        arch = self.architecture
        unit = self.tokens * arch.hidden_size * torch.finfo(self.dtype).bits // 8
        wide = arch.ffn_hidden_size / (4 * arch.hidden_size)
        gelu, common = 20 * wide, 5 + 14 + 6
        joint, single = common + 10 + gelu, common + 1 + gelu
        return int(unit * (arch.num_joint_layers * joint + arch.num_single_layers * single))

    def inputs(self) -> dict[str, Tensor]:
        """FluxModel's inputs, layout "sbh"."""
        from mxflux.flux.patchify import image_ids, text_ids

        arch, side = self.architecture, 2 * round(self.image**0.5)
        kw = {"device": self.device, "dtype": self.dtype}
        return {
            "img": torch.randn(self.image, self.batch, arch.in_channels, **kw),
            "txt": torch.randn(self.text, self.batch, arch.context_dim, **kw),
            "y": torch.randn(self.batch, arch.vec_in_dim, **kw),
            "timesteps": torch.rand(self.batch, **kw),
            "img_ids": image_ids(1, side, side).to(self.device),
            "txt_ids": text_ids(1, self.text).to(self.device),
        }
