# SPDX-License-Identifier: Apache-2.0
"""philox: the published test vectors; streams and offsets differ."""

from __future__ import annotations

import pytest
import torch

from mxflux.mx.philox import philox, random_words

# Random123 kat_vectors, philox4x32 10: counter, key, result.
VECTORS = [
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    (
        (0xFFFFFFFF,) * 4,
        (0xFFFFFFFF,) * 2,
        (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD),
    ),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]


@pytest.mark.parametrize(("counter", "key", "expected"), VECTORS)
def test_known_answers(
    counter: tuple[int, ...], key: tuple[int, int], expected: tuple[int, ...]
) -> None:
    words = philox(tuple(torch.tensor([c]) for c in counter), key)
    assert tuple(int(w) for w in words) == expected


def test_words_are_those_of_the_counter_and_fill_32_bits() -> None:
    rng = torch.tensor([7, (5 << 32) + 9])
    words = random_words(8, 64, rng, stream=1)
    index = (3 * 64 + 40) // 4
    block = philox(tuple(torch.tensor([c]) for c in (index, 0, 9, 5 | (1 << 31))), (7, 0))
    assert [int(w) for w in block] == words[3, 40:44].tolist()
    assert 0 <= int(words.min()) < 1 << 28
    assert int(words.max()) > (1 << 32) - (1 << 28)


def test_offset_seed_and_stream_change_every_block() -> None:
    base = random_words(4, 32, torch.tensor([1, 0]), 0)
    others = [
        random_words(4, 32, torch.tensor([1, 1]), 0),
        random_words(4, 32, torch.tensor([2, 0]), 0),
        random_words(4, 32, torch.tensor([1, 0]), 1),
    ]
    for other in others:
        assert base.ne(other).float().mean() > 0.99
    assert base.equal(random_words(4, 32, torch.tensor([1, 0]), 0))
