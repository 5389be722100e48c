# SPDX-License-Identifier: Apache-2.0
"""Host side of the packers with a producer in front: plans, launches, the sums of their partials.

Every function returns what `mxflux.mx.ops.quantize` returns for the tensor that the producer would
have written: row data, row scale, column data, column scale, with equal bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from mxflux.fusions import checks, tables
from mxflux.fusions.kernels.mx_chains import (
    gelu_grad_pack_kernel,
    gelu_pack_kernel,
    ln_pack_kernel,
    qkv_grad_pack_kernel,
)
from mxflux.fusions.launch import INTERPRETER, Launch
from mxflux.fusions.plans import Plans, signature
from mxflux.fusions.reduction import reduction
from mxflux.mx import tally
from mxflux.mx.blob import padded_length
from mxflux.mx.layouts import layout_named
from mxflux.mx.spec import QuantSpec
from mxflux.mx.triton_packers import Tile, clear_guard, geometry, tile, units

if TYPE_CHECKING:
    from mxflux.mx.packers import Packed

Tensor = torch.Tensor
PACKER = "chain"
"""What a census calls these packers."""

DUAL: dict[str, dict[str, Tile]] = {
    "cuda": {"ln": (64, 64, 4), "gelu": (64, 64, 4), "gelu_grad": (64, 64, 4), "qkv": (64, 0, 8)},
    "hip": {"ln": (64, 64, 4), "gelu": (64, 64, 4), "gelu_grad": (64, 64, 4), "qkv": (64, 0, 8)},
}
"""Backend and kernel -> BLOCK_M, BLOCK_N, warps where columns are packed. qkv: BLOCK_N is D."""

HEAD_DIMS = (32, 64, 128, 256)


@dataclass(frozen=True)
class PackPlan:
    """One launch, the shapes of its blobs, and of its partials with their sums, if any."""

    launch: Launch
    shapes: tuple[tuple[int, ...], ...]
    size: tuple[int, int]
    row: str
    col: str
    sums: tuple[int, ...] = ()
    reduce: Launch | None = None
    gamma: tuple[int, ...] = ()
    reduce_gamma: Launch | None = None

    def buffers(self, like: Tensor) -> Packed:
        """Fresh blobs; what no program writes is zero."""
        data, scale, data_t, scale_t = (
            like.new_empty(shape, dtype=torch.uint8) for shape in self.shapes
        )
        m, n = self.size
        clear_guard((data, scale), m, n, self.row)
        clear_guard((data_t, scale_t), n, m, self.col)
        return data, scale, data_t, scale_t

    def written(self, blobs: Packed) -> tuple[Tensor, ...]:
        """The blobs as the units that a kernel writes."""
        data, scale, data_t, scale_t = blobs
        return units(data, self.row), scale, units(data_t, self.col), scale_t


_plans: Plans[PackPlan] = Plans()


def backend() -> str:
    """cuda or hip: which tiles are taken."""
    return "cuda" if torch.version.hip is None else "hip"


def _ptx() -> bool:
    """Whether a kernel may hold PTX instructions."""
    return backend() == "cuda" and not INTERPRETER


def tiling(kernel: str, row: str, col: str, width: int = 0) -> Tile:
    """BLOCK_M, BLOCK_N and warps of a kernel for two spec texts; width: the head dimension."""
    if kernel != "qkv" and not col:
        return tile(row, col, backend())
    block_m, block_n, warps = DUAL[backend()][kernel]
    return block_m, block_n or width, warps


def blob_problem(rows: int, k: int, text: str) -> str | None:
    """Why a matrix (rows, k), padded along k as linears do, has no blob under a spec text."""
    if not text:
        return None
    spec = QuantSpec.parse(text)
    layout = layout_named(spec.layout)
    stored = padded_length(k, spec.layout)
    if rows % layout.row_multiple or stored % layout.col_multiple:
        return checks.expect(f"rows of a {spec.layout} blob", rows, f"x{layout.row_multiple}")
    return None


def ln_pack(
    x: Tensor, scale: Tensor, shift: Tensor, mean: Tensor, rstd: Tensor, row: str, col: str,
    tiles: Tile | None = None,
) -> Packed:  # fmt: skip
    """Blobs (S*B, H) and (H, S*B) of the LN-modulate of x [S,B,H] with the statistics [S*B]."""
    key = ("ln", signature(x, scale, shift), row, col, tiles)
    plan = _plans.get(key, _plan_ln, x, scale, shift, row, col, tiles)
    blobs = plan.buffers(x)
    plan.launch(x, scale, shift, mean, rstd, *plan.written(blobs))
    return blobs


def _plan_ln(
    x: Tensor, scale: Tensor, shift: Tensor, row: str, col: str, tiles: Tile | None
) -> PackPlan:
    seq, batch, width = x.shape
    m = seq * batch
    geo, fixed, warps = _geometry("ln", m, width, row, col, tiles)
    scalars = m, *x.stride()[:2], scale.stride(0), shift.stride(0)
    fixed |= {"N": width, "batch": batch, "tiles_n": geo.tiles_n}
    launch = _launch(ln_pack_kernel, geo.grid[0], scalars, fixed, warps)
    return PackPlan(launch, geo.shapes, (m, width), row, col)


def gelu_pack(x: Tensor, row: str, col: str, tiles: Tile | None = None) -> Packed:
    """Blobs of gelu_tanh(x), x (M, N) with an inner stride of 1."""
    plan = _plans.get(("gelu", signature(x), row, col, tiles), _plan_gelu, x, row, col, tiles)
    blobs = plan.buffers(x)
    plan.launch(x, *plan.written(blobs))
    return blobs


def _plan_gelu(x: Tensor, row: str, col: str, tiles: Tile | None) -> PackPlan:
    m, n = x.shape
    geo, fixed, warps = _geometry("gelu", m, n, row, col, tiles)
    fixed |= {"N": n, "tiles_n": geo.tiles_n, "PTX": _ptx()}
    launch = _launch(gelu_pack_kernel, geo.grid[0], (m, x.stride(0)), fixed, warps)
    return PackPlan(launch, geo.shapes, (m, n), row, col)


def gelu_grad_pack(
    g: Tensor, x: Tensor, rng: Tensor | None, row: str, col: str,
    sums: torch.dtype | None = None, tiles: Tile | None = None,
) -> tuple[Packed, Tensor | None]:  # fmt: skip
    """Blobs of d = g*gelu_tanh'(x), g and x (M, N); with `sums` also d summed over rows, (N,)."""
    key = ("gelu_grad", signature(g, x), row, col, sums, tiles)
    plan = _plans.get(key, _plan_gelu_grad, g, x, row, col, sums, tiles)
    blobs = plan.buffers(x)
    partial = x.new_empty(plan.sums, dtype=torch.float32)
    plan.launch(g, x, x if rng is None else rng, *plan.written(blobs), partial)
    return blobs, _summed(plan.reduce, partial, x.shape[1], sums)


def _plan_gelu_grad(
    g: Tensor, x: Tensor, row: str, col: str, sums: torch.dtype | None, tiles: Tile | None
) -> PackPlan:
    m, n = x.shape
    geo, fixed, warps = _geometry("gelu_grad", m, n, row, col, tiles)
    fixed |= {"N": n, "tiles_n": geo.tiles_n, "SUMS": sums is not None, "PTX": _ptx()}
    scalars = m, g.stride(0), x.stride(0)
    launch = _launch(gelu_grad_pack_kernel, geo.grid[0], scalars, fixed, warps)
    parts = geo.grid[0] // geo.tiles_n
    reduce = None if sums is None else reduction(_arch(x), 1, parts, n, fp64=False)
    shape = (parts, n) if sums is not None else (0,)
    return PackPlan(launch, geo.shapes, (m, n), row, col, shape, reduce)


def qkv_grad_pack(
    grads: tuple[Tensor, Tensor, Tensor], mixed: Tensor, weights: tuple[Tensor, Tensor],
    cos_sin: Tensor, rstd: Tensor, rng: Tensor | None, row: str, col: str,
    sums: torch.dtype | None = None, tiles: Tile | None = None,
) -> tuple[Packed, Tensor, Tensor, Tensor | None]:  # fmt: skip
    """Blobs of d(mixed) as a matrix (S*B, heads*3*D), d(q weight), d(k weight), and with `sums`
    d(mixed) summed over its rows.

    grads: dq, dk, dv [S,B,heads,D]. mixed: [S,B,heads,3*D]. rstd: [2, S*B*heads] fp32. All with an
    inner stride of 1.
    """
    key = ("qkv", signature(*grads, mixed, *weights, cos_sin), row, col, sums, tiles)
    plan = _plans.get(key, _plan_qkv, grads, mixed, cos_sin, row, col, sums, tiles)
    blobs = plan.buffers(mixed)
    partial = mixed.new_empty(plan.sums, dtype=torch.float32)
    gamma = mixed.new_empty(plan.gamma, dtype=torch.float32)
    some_rng = mixed if rng is None else rng
    plan.launch(
        *grads, mixed, *weights, cos_sin, rstd, some_rng, *plan.written(blobs), gamma, partial
    )
    dq_weight, dk_weight = (torch.empty_like(weight) for weight in weights)
    if plan.reduce_gamma is not None:
        plan.reduce_gamma(gamma, dq_weight, dk_weight, dk_weight)
    return blobs, dq_weight, dk_weight, _summed(plan.reduce, partial, plan.size[1], sums)


def _plan_qkv(
    grads: tuple[Tensor, Tensor, Tensor], mixed: Tensor, cos_sin: Tensor, row: str, col: str,
    sums: torch.dtype | None, tiles: Tile | None,
) -> PackPlan:  # fmt: skip
    seq, batch, heads, three = mixed.shape
    dim, m, n = three // 3, seq * batch, heads * three
    geo, fixed, warps = _geometry("qkv", m, n, row, col, tiles, dim)
    tiles_m = geo.grid[0] // (3 * heads)
    parts = tiles_m * heads
    per_sample = cos_sin.shape[1] != 1
    fixed |= {
        "N": n,
        "batch": batch,
        "heads": heads,
        "SUMS": sums is not None,
        "TABLE_PER_SAMPLE": per_sample,
        "ONE_POSITION": not per_sample and batch % fixed["BLOCK_M"] == 0,
    }
    scalars = (
        m, *(stride for t in (*grads, mixed) for stride in t.stride()[:3]),
        *cos_sin.stride()[:2], m * heads, parts,
    )  # fmt: skip
    launch = _launch(qkv_grad_pack_kernel, tiles_m * 3 * heads, scalars, fixed, warps)
    arch = _arch(mixed)
    reduce = None if sums is None else reduction(arch, 1, tiles_m, n, fp64=False)
    shape = (tiles_m, n) if sums is not None else (0,)
    gamma = reduction(arch, 2, parts, dim, fp64=False)
    return PackPlan(
        launch, geo.shapes, (m, n), row, col, shape, reduce, (2, parts, dim), gamma
    )  # fmt: skip


def _geometry(
    kernel: str, m: int, n: int, row: str, col: str, tiles: Tile | None, width: int = 0
) -> tuple[Any, dict[str, Any], int]:
    """Grid and blob shapes as the packers have them, the compile-time arguments, the warps."""
    chosen = tiles or tiling(kernel, row, col, width)
    geo = geometry(m, n, (n, 1), row, col, chosen)
    fixed = {
        "ROW": row,
        "COL": col,
        "EVEN": geo.keywords["EVEN"],
        "LONG": geo.keywords["LONG"],
        "BLOCK_M": chosen[0],
        "BLOCK_N": chosen[1],
    }
    return geo, fixed, chosen[2]


def _launch(
    kernel: Any, grid: int, scalars: tuple[int, ...], fixed: dict[str, Any], warps: int
) -> Launch:
    # As the packers: a rotation's first product fused into its sum would round subnormals otherwise
    return Launch(kernel, grid, scalars, fixed, warps, enable_fp_fusion=False)


def _summed(
    reduce: Launch | None, partial: Tensor, columns: int, dtype: torch.dtype | None
) -> Tensor | None:
    if reduce is None or dtype is None:
        return None
    out = partial.new_empty(columns, dtype=dtype)
    reduce(partial, out, out, out)
    return out


def _arch(x: Tensor) -> str:
    return tables.architecture(x.device)


def record(site: Tensor | None, role: str, row: str, col: str) -> None:
    """Count a quantization in an open census, as `mxflux.mx.ops.quantize` does."""
    if site is None:
        return
    formats = dict.fromkeys(QuantSpec.parse(text).format for text in (row, col) if text)
    direction = "dual" if row and col else ("row" if row else "column")
    tally.record_quantize(site, f"{role}:{direction}", "/".join(formats), PACKER)
