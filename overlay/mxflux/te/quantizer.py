# SPDX-License-Identifier: Apache-2.0
"""MXQuantizer: TE's quantizer interface over mxflux.mx, and the GEMMs of what it made."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, NoReturn, cast

import torch
from transformer_engine.pytorch.quantized_tensor import Quantizer

from mxflux.mx import ops, tally
from mxflux.mx.blob import MXBlob
from mxflux.mx.errors import MXError, MXValueError
from mxflux.mx.gemm import gemm
from mxflux.mx.quantize import ABSENT
from mxflux.mx.spec import QuantSpec
from mxflux.te.bf16 import bf16_gemm
from mxflux.te.plan import Plan
from mxflux.te.storage import MXStorage, Pack

if TYPE_CHECKING:
    from collections.abc import Iterator


class _CustomQuantizer(Quantizer):
    """What TE asks of every quantizer of a custom recipe."""

    custom = True
    #: The name of `custom` up to TE 2.9.
    experimental = True

    def __init__(self) -> None:
        super().__init__(rowwise=True, columnwise=True)
        self.internal = True

    def supports_only_rowwise_all_gather(self) -> bool:
        """No: TE gathers in high precision and quantizes afterwards."""
        return False

    def is_quantizable(self, inp: torch.Tensor) -> bool:  # noqa: ARG002 - TE's signature
        """Whether it can be gathered quantized: never."""
        return False

    def _get_compatible_recipe(self) -> type | None:
        """No recipe keeps parameters in this form."""
        return None


class RefusingQuantizer(_CustomQuantizer):
    """For slots that TE fills and does not use: it raises if TE uses one after all."""

    def __init__(self, slot: str) -> None:
        super().__init__()
        self.slot = slot

    def quantize(self, tensor: torch.Tensor, **_: Any) -> NoReturn:
        """Raise NotImplementedError."""
        raise NotImplementedError(
            f"{self.slot}: the MX recipes quantize the input, the weight and the output gradient "
            "of linear layers only; leave fp8_output, fp8_grad and FP8 attention off"
        )

    quantize_impl = update_quantized = quantize


class MXQuantizer(_CustomQuantizer):
    """Packs one tensor of a linear layer and multiplies what it and its siblings packed.

    plan: what the layer's GEMMs are made of. role: input, weight or grad_output. module: the name
    that counts in a census.

    Equal where its annotated fields are, all of them plain values: so TE can register it for
    torch.compile, which bakes quantizers into a graph as constants and makes them anew from these.
    """

    plan_text: str
    role: str
    module: str
    #: Patched TE hands `out` and `accumulate` to the weight gradient's qgemm.
    qgemm_writes_out = True

    def __init__(self, plan: Plan, role: str, module: str = "") -> None:
        super().__init__()
        plan.packs(role)
        self.plan_text, self.role, self.module = str(plan), role, module

    @property
    def plan(self) -> Plan:
        """The GEMMs of the layer."""
        return Plan.parse(self.plan_text)

    @property
    def row(self) -> str:
        """Spec text of the row pack, "" for a tensor that stays in BF16."""
        return self.plan.packs(self.role)[0]

    @property
    def column(self) -> str:
        """Spec text of the column pack, "" for a tensor that stays in BF16."""
        return self.plan.packs(self.role)[1]

    @property
    def where(self) -> str:
        """Module and tensor, for messages."""
        return f"{self.module or tally.UNNAMED}, {self.role}"

    def _key(self) -> tuple[object, ...]:
        usage = (self.rowwise_usage, self.columnwise_usage, self.internal)
        return (*usage, self.plan_text, self.role, self.module)

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self._key() == other._key()

    def __hash__(self) -> int:
        # Not of the usage, which set_usage changes.
        return hash((self.plan_text, self.role, self.module))

    def copy(self) -> MXQuantizer:
        """A quantizer of its own with the same state."""
        twin = object.__new__(type(self))
        twin.__dict__.update(self.__dict__)
        return twin

    def is_requantization_safe(self) -> bool:
        """Whether packing a tensor again gives the same bytes."""
        return not any(QuantSpec.parse(text).stochastic for text in (self.row, self.column) if text)

    def __call__(self, tensor: torch.Tensor) -> MXStorage:
        """Pack for use inside a layer; a parameter cannot live in this form."""
        if not self.internal:
            raise NotImplementedError(
                f"{self.where}: MX parameters (quantized_model_init, fp4_param) are not supported: "
                "keep the weights in BF16, TE quantizes them in the forward"
            )
        return self.quantize(tensor)

    def quantize(
        self,
        tensor: torch.Tensor,
        *,
        out: MXStorage | None = None,
        dtype: torch.dtype | None = None,
    ) -> MXStorage:
        """tensor (.., K) bf16, fp16 or fp32 -> its packs in the directions set by `set_usage`.

        dtype: what `dequantize` returns, the tensor's own if None. Raises MXValueError.
        """
        if out is not None:
            return out.quantize_(tensor)
        matrix = tensor.detach().reshape(-1, tensor.shape[-1])
        row, column = self._packs(matrix)
        shape, kept = tensor.shape, dtype or tensor.dtype
        return MXStorage(shape, kept, tensor.device, self, row, column)

    quantize_impl = quantize

    def update_quantized(
        self, src: torch.Tensor, dst: MXStorage, *, noop_flag: torch.Tensor | None = None
    ) -> MXStorage:
        """Pack `src` into `dst`, see `MXStorage.quantize_`."""
        return dst.quantize_(src, noop_flag=noop_flag)

    def _packs(self, matrix: torch.Tensor) -> tuple[Pack | None, Pack | None]:
        row = self.row if self.rowwise_usage else ABSENT
        column = self.column if self.columnwise_usage else ABSENT
        data = scale = data_t = scale_t = matrix.new_empty(0)
        if row or column:
            rng = None if self.is_requantization_safe() else _rng(matrix.device)
            with self._named("quantize"):
                data, scale, data_t, scale_t = ops.quantize(
                    matrix, rng, row, column, pad=True, site=self._site(), role=self.role
                )
        return (
            self._pack(self.rowwise_usage, row, (data, scale), matrix),
            self._pack(self.columnwise_usage, column, (data_t, scale_t), matrix.t()),
        )

    def _pack(self, wanted: bool, spec: str, packed: Pack, plain: torch.Tensor) -> Pack | None:
        if not wanted:
            return None
        return packed if spec else (plain, plain.new_empty(0))

    @contextlib.contextmanager
    def _named(self, what: str) -> Iterator[None]:
        """Errors of mxflux.mx know shapes and formats, not the layer: add it."""
        try:
            yield
        except MXError as error:
            raise type(error)(f"{self.where}, {what}: {error}") from error

    def _site(self) -> torch.Tensor | None:
        return tally.site_named(self.module or tally.UNNAMED) if tally.active() else None

    def qgemm(
        self,
        qx: torch.Tensor,  # noqa: ARG002 - the storages carry data and scales
        qw: torch.Tensor,  # noqa: ARG002
        m_params: object,  # noqa: ARG002 - accumulation is fp32 always
        out_dtype: torch.dtype,
        sx: torch.Tensor,  # noqa: ARG002
        sw: torch.Tensor,  # noqa: ARG002
        bias: torch.Tensor | None = None,
        out: torch.Tensor | None = None,
        accumulate: bool = False,
        *,
        gemm_type: Any,
        qresult_x: MXStorage,
        qresult_w: MXStorage,
    ) -> torch.Tensor:
        """A (M, K) and B (N, K) -> A B^T + bias (M, N) in out_dtype, or written into `out`.

        qresult_x, qresult_w: the storages that hold A and B; gemm_type says in which direction.
        Raises MXValueError if they were packed by another plan than this quantizer's.
        """
        direction = gemm_type.name.lower()
        plan = self.plan.gemm(direction)
        a = qresult_x.operand(column=direction == "wgrad")
        b = qresult_w.operand(column=direction != "fprop")
        for side, operand, spec in (("A", a, plan.a), ("B", b, plan.b)):
            packed = str(operand.spec) if isinstance(operand, MXBlob) else ""
            if packed != spec:
                raise MXValueError(
                    f"{self.where}: {direction} wants {side} as {spec or 'bf16'!r}, "
                    f"it was packed as {packed or 'bf16'!r}: was the recipe changed in between?"
                )
        into: dict[str, Any] = {"out_dtype": out_dtype, "bias": bias}
        into |= {"out": out, "accumulate": accumulate, "site": self._site(), "direction": direction}
        if isinstance(a, MXBlob) and isinstance(b, MXBlob):
            with self._named(direction):
                return gemm(a, b, backend=plan.backend, **into)
        return bf16_gemm(cast("torch.Tensor", a), cast("torch.Tensor", b), **into)


def _rng(device: torch.device) -> torch.Tensor:
    """Seed and offset from the device's default generator, so that its saved state covers them."""
    return torch.randint(0, 1 << 62, (2,), dtype=torch.int64, device=device)
