# SPDX-License-Identifier: Apache-2.0
"""The quantizer and the storage as TE's caches, autograd and checkpoints handle them."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
import torch
from support.te_mx import data, packed
from torch.testing import assert_close
from transformer_engine.common import recipe as te_recipe

from mxflux.mx import MissingOperandError

M, K = 48, 80
MISSING = "has no attribute 'MXFP4BlockScaling'"
pytestmark = pytest.mark.control(MISSING)


def quantizer(role: str = "weight", **options: Any) -> Any:
    recipe = te_recipe.MXFP4BlockScaling(**{"backend": "emulated", **options})
    return recipe.qfactory(f"linear_{role}")


@pytest.mark.parametrize("hadamard", [False, True])
def test_dequantize_undoes_rotation_and_transposition(hadamard: bool) -> None:
    x, q = data(2, M // 2, K), quantizer(use_hadamard=hadamard)
    both = q(x)
    from_rows = both.dequantize(dtype=torch.float32)
    both.update_usage(rowwise_usage=False)
    from_columns = both.dequantize(dtype=torch.float32)
    assert from_rows.shape == from_columns.shape == x.shape == both.size() == both.shape
    if not hadamard:
        flat = x.reshape(M, K)
        assert_close(from_rows.reshape(M, K).double(), packed(flat, "e2m1", "even")[:, :K])
        columns = packed(flat.t(), "e2m1", "even")[:, :M].t()
        assert_close(from_columns.reshape(M, K).double(), columns)
    for values in (from_rows, from_columns):
        error = (values - x.float()).norm() / x.float().norm()
        assert error < 0.2
    assert both.dequantize().dtype is torch.bfloat16


def test_saving_leaves_the_storage_whole() -> None:
    stored = quantizer()(data(M, K))
    tensors, shell = stored.prepare_for_saving()
    assert stored.get_usages() == {"rowwise": True, "columnwise": True}
    assert shell.get_usages() == {"rowwise": False, "columnwise": False}
    assert shell.restore_from_saved([*tensors, "next"]) == ["next"]
    assert_close(shell.dequantize(), stored.dequantize(), rtol=0, atol=0)


def test_requantizing_in_place_spares_what_was_saved_before() -> None:
    stored = quantizer()(data(M, K))
    tensors, shell = stored.prepare_for_saving()
    shell.restore_from_saved(tensors)
    before = shell.dequantize()
    stored.quantize_(data(M, K, seed=1))
    assert_close(shell.dequantize(), before, rtol=0, atol=0)
    assert_close(stored.dequantize(), quantizer()(data(M, K, seed=1)).dequantize(), rtol=0, atol=0)


@pytest.mark.parametrize("skip", [0.0, 1.0])
def test_a_skippable_update_keeps_its_buffers_and_honours_the_flag(skip: float) -> None:
    stored = quantizer()(data(M, K))
    addresses = [t.data_ptr() for t in stored._tensors()]
    stored.quantize_(data(M, K, seed=1), noop_flag=torch.tensor([skip]))
    assert [t.data_ptr() for t in stored._tensors()] == addresses
    expected = quantizer()(data(M, K, seed=0 if skip else 1))
    for ours, theirs in zip(stored._tensors(), expected._tensors(), strict=True):
        assert torch.equal(ours, theirs)


def test_a_skippable_update_cannot_add_a_direction() -> None:
    q = quantizer()
    q.set_usage(rowwise=True, columnwise=False)
    stored = q(data(M, K))
    q.set_usage(columnwise=True)
    with pytest.raises(MissingOperandError, match="keeps its buffers"):
        stored.quantize_(data(M, K), noop_flag=torch.zeros(1))


def test_a_bf16_pack_is_the_tensor_itself() -> None:
    x, q = data(M, K), quantizer("input", wgrad_precision="bf16")
    stored = q(x)
    assert stored.data_t.data_ptr() == x.data_ptr()
    assert stored.data_t.shape == (K, M)
    assert stored.data.dtype is torch.uint8


def test_quantizers_compare_by_value_and_pickle() -> None:
    q = quantizer()
    assert q == quantizer() != quantizer(use_hadamard=True)
    assert q != quantizer("input")
    twin = pickle.loads(pickle.dumps(q))
    assert twin == q == q.copy()
    twin.set_usage(columnwise=False)
    assert twin != q
    assert q.copy().columnwise_usage
    assert hash(twin) == hash(q)


def test_requantization_is_unsafe_only_where_rounding_is_random() -> None:
    assert quantizer("weight", stochastic_rounding=True).is_requantization_safe()
    assert quantizer("grad_output").is_requantization_safe()
    assert not quantizer("grad_output", stochastic_rounding=True).is_requantization_safe()


def test_an_output_storage_is_filled() -> None:
    q = quantizer()
    stored = q(data(M, K))
    assert q.quantize(data(M, K, seed=1), out=stored) is stored
    assert_close(stored.dequantize(), q(data(M, K, seed=1)).dequantize(), rtol=0, atol=0)
    other = q(data(M, K, seed=2))
    stored.copy_from_storage(other)
    assert_close(stored.dequantize(), other.dequantize(), rtol=0, atol=0)
    with pytest.raises(TypeError, match="cannot copy"):
        stored.copy_from_storage(q(data(K, M)))


@pytest.mark.upstream("transformer-engine>=2.18", reason="no constants of torch.compile before")
def test_te_can_make_it_a_constant_of_a_compiled_graph() -> None:
    """Every annotated field is a plain value, and they suffice to make the quantizer again."""
    from transformer_engine.pytorch.dynamo import register_value_opaque_quantizer

    from mxflux.te.quantizer import MXQuantizer

    class Registered(MXQuantizer):
        """Registered, which MXQuantizer itself is not: that would last beyond this test."""

    register_value_opaque_quantizer(Registered)
    q = Registered(quantizer(use_hadamard=True).plan, "weight", "layers.0.fc1")
    q.set_usage(columnwise=False)
    text, names = q.__fx_repr__()
    again = eval(text, names)
    assert again == q
    assert again is not q
    assert again != Registered(q.plan, "weight", "layers.1.fc1")
    x = data(M, K)
    assert torch.equal(again(x).data, q(x).data)
    assert again(x).get_usages() == {"rowwise": True, "columnwise": False}
