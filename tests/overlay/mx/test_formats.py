# SPDX-License-Identifier: Apache-2.0
"""formats: constants against ml_dtypes, unknown names refused."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import oracle
import pytest

from mxflux.mx import reference
from mxflux.mx.errors import MXValueError
from mxflux.mx.formats import FORMATS, ScaleMode, element_format, scale_mode


@pytest.mark.parametrize("name", FORMATS)
def test_constants_agree_with_ml_dtypes(name: str) -> None:
    fmt, info = FORMATS[name], ml_dtypes.finfo(oracle.DTYPES[name])
    assert fmt.bits == info.bits
    assert fmt.largest == float(info.max)
    assert fmt.min_normal == float(info.smallest_normal)
    assert fmt.min_subnormal == float(info.smallest_subnormal)
    assert fmt.mantissa_bits == info.nmant
    assert 2.0**fmt.emax <= fmt.largest < 2.0 ** (fmt.emax + 1)
    assert fmt.block_bytes == 4 * fmt.bits


@pytest.mark.parametrize("name", FORMATS)
def test_every_code_has_ml_dtypes_value(name: str) -> None:
    fmt = FORMATS[name]
    codes = np.arange(1 << fmt.bits, dtype=np.uint8)
    expected = codes.view(oracle.DTYPES[name]).astype(np.float32)
    np.testing.assert_array_equal(reference.code_values(fmt).numpy(), expected)
    assert reference.code_values(fmt)[fmt.largest_code] == fmt.largest


def test_unknown_names_are_refused_with_the_valid_ones() -> None:
    with pytest.raises(MXValueError, match=r"'e4m4'; valid: e2m1, e2m3, e3m2, e4m3, e5m2"):
        element_format("e4m4")
    with pytest.raises(MXValueError, match=r"'round'; valid: floor, ceil, even, rceil"):
        scale_mode("round")
    assert scale_mode("rceil") is ScaleMode.RCEIL
    assert element_format(FORMATS["e2m1"]) is FORMATS["e2m1"]
