# SPDX-License-Identifier: Apache-2.0
"""The data set of an MLPerf run is not touched before its clock starts."""

from __future__ import annotations

from mxflux.data import DataSettings, Loader, build_loaders
from mxflux.evaluation.late_loader import LateLoader

SETTINGS = DataSettings(
    kind="mock", micro_batch_size=4, seed=1, image_size=32, text_length=6, context_dim=8,
    vec_in_dim=5,
)  # fmt: skip


class Opened:
    """Counts how often the data set is opened."""

    def __init__(self) -> None:
        self.times = 0

    def __call__(self) -> Loader:
        self.times += 1
        return build_loaders(SETTINGS, rank=0, world_size=1, training=True)


def test_it_opens_with_the_first_batch_and_once() -> None:
    opened = Opened()
    loader = LateLoader(opened)
    assert (loader.observed, opened.times) == (0, 0)
    batches = iter(loader)
    assert opened.times == 1
    first, plain = next(batches), next(iter(Opened()()))
    assert all((first[key] == plain[key]).all() for key in plain)
    assert (loader.observed, loader.samples, opened.times) == (4, None, 1)


def test_closing_what_was_never_used_opens_nothing() -> None:
    opened = Opened()
    LateLoader(opened).close()
    assert opened.times == 0


def test_a_state_is_restored_as_without_it() -> None:
    plain = Opened()()
    for _ in range(3):
        next(plain)
    state = plain.state_dict()
    late = LateLoader(Opened())
    late.load_state_dict(state)
    assert late.state_dict() == state
    one, other = next(late), next(plain)
    assert all((one[key] == other[key]).all() for key in other)
    late.close()
