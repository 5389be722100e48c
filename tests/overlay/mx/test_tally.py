# SPDX-License-Identifier: Apache-2.0
"""The census: counts per module and direction, a table, a check that names the missing ones."""

from __future__ import annotations

import pytest
import torch

from mxflux.mx import MXError, PrecisionError, census
from mxflux.mx.linear import MXLinear
from mxflux.mx.plans import mxfp4, mxfp6
from mxflux.mx.tally import active


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc1 = MXLinear(64, 96, mxfp6(), dtype=torch.bfloat16)
        self.fc2 = MXLinear(96, 64, mxfp4(backward="bf16"), dtype=torch.bfloat16)
        self.out = torch.nn.Linear(64, 8, dtype=torch.bfloat16)
        self.skip = False

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.fc1(x)
        y = y @ self.fc2.weight.t() if self.skip else self.fc2(y)
        out: torch.Tensor = self.out(y)
        return out


def step(net: torch.nn.Module) -> None:
    net(torch.randn(4, 64, dtype=torch.bfloat16)).sum().backward()


def test_counts_three_gemms_a_linear_and_micro_step() -> None:
    net = Net()
    with census(net) as counted:
        step(net)
        step(net)
    assert counted.expected == ("fc1", "fc2")
    assert counted.gemms["fc1", "fprop", "e2m3", "emulated"] == 2
    assert counted.gemms["fc1", "wgrad", "e2m3", "emulated"] == 2
    assert counted.gemms["fc2", "dgrad", "bf16", "torch"] == 2
    assert counted.quantizations["fc2", "input:row", "e2m1", "reference"] == 2
    # The input of the net needs no gradient, so fc1 has no dgrad; fc2's backward is bf16.
    assert counted.total_gemms() == 6
    with pytest.raises(PrecisionError, match=r"2 of 2 .*\n  fc1: dgrad\n  fc2: dgrad, wgrad$"):
        counted.check()
    counted.check(directions=("fprop",))
    counted.check(directions=("fprop", "wgrad"), formats=("e2m3", "e2m1", "bf16"))
    with pytest.raises(PrecisionError, match=r"1 of 2 .*\n  fc2: fprop$"):
        counted.check(directions=("fprop",), formats=("e2m3",))
    table = counted.table()
    assert "| fc1 | fprop | e2m3 | emulated | 2 |" in table
    assert "| fc1 | weight:row | e2m3 | reference | 2 |" in table


def test_names_the_linear_that_was_bypassed() -> None:
    net = Net()
    net.skip = True
    with census(net) as counted:
        step(net)
    with pytest.raises(PrecisionError, match="fc2: fprop, dgrad, wgrad"):
        counted.check(("fc2",))


def test_a_model_without_mx_linears_is_an_error_not_a_pass() -> None:
    with census(torch.nn.Linear(4, 4)) as counted:
        pass
    with pytest.raises(PrecisionError, match="no linear was expected to run in MX"):
        counted.check()


def test_nothing_is_counted_outside_and_two_at_once_are_refused() -> None:
    net = Net()
    with census(net) as counted:
        assert active() is counted
        with pytest.raises(MXError, match="open already"), census(net):
            pass
    assert active() is None
    assert net.fc1.mx_site is None
    step(net)
    assert counted.total_gemms() == 0


def test_an_exception_closes_the_census() -> None:
    net = Net()
    with pytest.raises(ZeroDivisionError), census(net):
        raise ZeroDivisionError
    assert active() is None
    assert net.fc2.mx_site is None


#: torch's Dynamo makes an instance of every autograd Function it traces and warns itself about it.
@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
def test_counts_through_a_compiled_layer_too() -> None:
    torch.compiler.reset()
    net = Net()
    compiled = torch.compile(net, fullgraph=True, backend="aot_eager")
    with census(net) as counted:
        step(compiled)
        step(compiled)
    assert counted.gemms["fc1", "fprop", "e2m3", "emulated"] == 2
    assert counted.gemms["fc1", "wgrad", "e2m3", "emulated"] == 2
