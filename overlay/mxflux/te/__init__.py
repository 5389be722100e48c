# SPDX-License-Identifier: Apache-2.0
"""What stands behind MXFP4BlockScaling and MXFP6BlockScaling of the patched TransformerEngine.

`check_options`, `check_support` and `make_quantizer` are what the recipes call. Nothing here
imports transformer_engine before the first quantizer is made: a recipe can be built anywhere.
"""

from __future__ import annotations

from mxflux.te.factory import make_quantizer
from mxflux.te.options import Options, check_options
from mxflux.te.plan import GemmPlan, Plan
from mxflux.te.support import check_support
from mxflux.te.tally import census, check_census

__all__ = [
    "GemmPlan",
    "Options",
    "Plan",
    "census",
    "check_census",
    "check_options",
    "check_support",
    "make_quantizer",
]
