# SPDX-License-Identifier: Apache-2.0
"""What is allowed where no repetition of the baseline shows how far apart equal runs lie.

A difference at a sample count says little where the loss falls steeply: there a run that is behind
by a few steps is far above. Of flux_tiny with three seeds, pairs lie up to 11 % apart half way and
end within 5 %: a limit of 5 % alone calls four of the six orders diverged, this one none, and still
finds MXFP4 without its rotation, which the A/A envelope finds as well (docs/results/flux-tiny.md).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING

from .alignment import interpolate
from .curves import Curve

if TYPE_CHECKING:
    from collections.abc import Sequence

SHARE = 0.05
"""Of the baseline's loss."""
LAG = 0.05
"""Of the samples: a run may have the loss that the baseline has so much earlier or later."""
CRITERION = f"{SHARE:.0%} of the baseline and a lag of {LAG:.0%} (default)"


def default_limits(x: Sequence[float], losses: Sequence[float]) -> list[float]:
    """Limit at each of the ascending positions ``x`` for the baseline's ``losses`` there."""
    curve = Curve(tuple(x), tuple(losses))
    reach = LAG * (x[-1] - x[0])
    return [
        SHARE * abs(loss) + _movement(curve, position - reach, position + reach, loss)
        for position, loss in zip(x, losses, strict=True)
    ]


def _movement(curve: Curve, start: float, stop: float, loss: float) -> float:
    """Greatest distance from ``loss`` that the curve has between two positions."""
    first, last = bisect_left(curve.x, start), bisect_right(curve.x, stop)
    near = list(curve.y[first:last])
    near += [interpolate(curve, end) for end in (start, stop) if curve.x[0] <= end <= curve.x[-1]]
    return max(max(near) - loss, loss - min(near))
