# SPDX-License-Identifier: Apache-2.0
"""What a training run raises on purpose, and the exit code that each leads to."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """Exit codes of ``python -m mxflux.training.main``."""

    OK = 0
    """Finished, or stopped by a signal after saving."""
    CHECK_FAILED = 1
    """What ran is not what was asked for."""
    USAGE = 2
    """The recipe or the command line cannot be used."""
    RUNTIME = 3
    """The run itself failed."""


class TrainingError(RuntimeError):
    """A run that cannot go on; the message names step, rank or key."""

    exit_code = ExitCode.RUNTIME


class CheckError(TrainingError):
    """The first step was not what the recipe says: precision, attention, fusion or config."""

    exit_code = ExitCode.CHECK_FAILED


class SetupError(TrainingError):
    """Settings that cannot be run together, or on this machine."""

    exit_code = ExitCode.USAGE


class NonFiniteError(TrainingError):
    """Loss or gradient norm became NaN or infinite; nothing of that step was saved."""
