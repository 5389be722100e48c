# SPDX-License-Identifier: Apache-2.0
"""What mxflux.mx raises; every class is an MXError."""

from __future__ import annotations


class MXError(Exception):
    """Base of every error that mxflux.mx raises on purpose."""


class MXValueError(MXError, ValueError):
    """A shape, dtype, format, mode or layout that has no defined result."""


class MXUnavailableError(MXError, RuntimeError):
    """A backend or packer was asked for and cannot run here; the message says why."""


class MissingOperandError(MXError, RuntimeError):
    """A GEMM asked for a blob that was never packed, as in a backward after row-only packing."""


class PrecisionError(MXError, RuntimeError):
    """The census found a linear that did not run in the format it was meant to run in."""
