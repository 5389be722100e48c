# SPDX-License-Identifier: Apache-2.0
"""What evaluation refuses."""

from __future__ import annotations


class EvaluationError(ValueError):
    """An evaluation that cannot give an exact loss: which number does not fit, and what would."""


class EvaluationResultError(EvaluationError):
    """What all ranks found together, and raise alike: samples that lack, a loss that is not finite.

    Collectives are still possible where it is caught.
    """
