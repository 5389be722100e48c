# SPDX-License-Identifier: Apache-2.0
"""The loader that a run's settings ask for, and the encodings of its empty prompt."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mxflux.training.cfg_dropout import EmptyEncodings, find_empty_encodings

from .digits import DigitSamples, digit_encoders
from .errors import DataError
from .indexed import IndexedLoader, Samples
from .mock import MockSamples, mock_empty_encodings

if TYPE_CHECKING:
    from .loader import Loader
    from .settings import DataSettings


def build_loaders(settings: DataSettings, *, rank: int, world_size: int, training: bool) -> Loader:
    """This data-parallel rank's loader: endless and shuffled in training, in order in validation.

    Raises DataError naming the setting, the file or the split that cannot be used.
    """
    if not 0 <= rank < world_size:
        raise DataError(f"rank {rank} is not one of {world_size} data-parallel ranks")
    if settings.kind == "energon":
        from .energon_dataset import require_energon

        require_energon()
        from .energon import EnergonLoader

        return EnergonLoader(settings, rank=rank, world_size=world_size, training=training)
    return IndexedLoader(
        _samples(settings, training),
        settings.batch_size(training),
        rank=rank,
        world_size=world_size,
        shuffle_seed=settings.seed if training else None,
        endless=training or settings.endless_validation,
    )


def empty_encodings(settings: DataSettings, folder: str | None = None) -> EmptyEncodings:
    """Encodings of the empty prompt: from ``folder``, or those that go with the data.

    Raises FileNotFoundError naming the folders searched, DataError when the shapes do not fit.
    """
    if folder is None and settings.kind == "digits":
        _, words = digit_encoders(settings)
        prompt, pooled = words.encode("")
        return EmptyEncodings(prompt[None], pooled[None])
    if folder is None and settings.kind == "mock":
        return mock_empty_encodings(settings.shape, settings.seed)
    found = find_empty_encodings(folder, settings.path)
    for key, name, tensor in (("prompt_embeds", "t5_empty.npy", found.t5),
                              ("pooled_prompt_embeds", "clip_empty.npy", found.clip)):  # fmt: skip
        if tuple(tensor.shape[1:]) != settings.shape.of(key):
            raise DataError(
                f"{name} of {folder or settings.path}: {list(tensor.shape[1:])}, the run needs "
                f"{list(settings.shape.of(key))} (data.text_length, model.context_dim or "
                "model.vec_in_dim)"
            )
    return found


def _samples(settings: DataSettings, training: bool) -> Samples:
    if settings.kind == "digits":
        return DigitSamples(settings, validation=not training)
    return MockSamples(
        settings.shape,
        settings.latent_keys,
        settings.seed,
        settings.mock_samples,
        validation=not training,
    )
