# SPDX-License-Identifier: Apache-2.0
"""Captions to embeddings without a network: every word has a fixed, hashed direction.

A stand-in for T5 and CLIP in tests and demonstrations: the same bits on every machine, other
words other vectors, no meaning beyond that.
"""

from __future__ import annotations

import hashlib
import re

import numpy as np
import torch
from torch import Tensor

from mxflux.data.errors import DataError

END = "</s>"
_WORD = re.compile(r"\w+|[^\w\s]")


class HashedWords:
    """Captions to prompt embeddings [text_length, context_dim] and a pooled one [vec_in_dim].

    A word at position i is (sign vector of the word + sign vector of i) / sqrt(2); an end token
    follows the last word, zeros follow it; what does not fit is cut before the end token, as T5's
    tokenizer does. Pooled: the words' sum over the square root of their number. All fp32.
    """

    def __init__(self, text_length: int, context_dim: int, vec_in_dim: int) -> None:
        for name, value in (("text_length", text_length), ("context_dim", context_dim),
                            ("vec_in_dim", vec_in_dim)):  # fmt: skip
            if value < 1:
                raise DataError(f"{name}={value} must be positive")
        self.text_length = text_length
        self.context_dim = context_dim
        self.vec_in_dim = vec_in_dim

    def encode(self, caption: str) -> tuple[Tensor, Tensor]:
        """Prompt embeddings and pooled embedding of one caption."""
        words = [*tokens(caption)[: self.text_length - 1], END]
        prompt = torch.zeros(self.text_length, self.context_dim)
        for position, word in enumerate(words):
            directions = signs(f"word {word}", self.context_dim)
            directions = directions + signs(f"position {position}", self.context_dim)
            prompt[position] = directions / 2**0.5
        pooled = torch.stack([signs(f"pooled {word}", self.vec_in_dim) for word in words])
        return prompt, pooled.sum(0) / len(words) ** 0.5


def tokens(caption: str) -> list[str]:
    """Lower-case words and punctuation marks of a caption."""
    return _WORD.findall(caption.lower())


def signs(text: str, width: int) -> Tensor:
    """``width`` numbers -1 or 1 that depend on ``text`` alone (bits of SHAKE-256)."""
    stream = hashlib.shake_256(text.encode()).digest((width + 7) // 8)
    bits = np.unpackbits(np.frombuffer(stream, dtype=np.uint8), count=width)
    return torch.from_numpy(bits.astype(np.float32) * 2 - 1)
