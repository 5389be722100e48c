#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# All of MX that needs a GPU, in one command on a machine without network; under 8 minutes on an H200.
#
#   benchmarks/device_mx.sh FOLDER OUT [STEP...]
#
# FOLDER is what benchmarks/collect_te.py made. STEP: mx, te, census, packers; all of them if none.
# Writes OUT/summary.txt (a line a step, then the tables), OUT/log (everything), the tables of the
# benchmarks, and the extension that it built: put that into FOLDER and the next run is 100 s shorter.
set -u
root=$(cd "$(dirname "$0")/.." && pwd)
from=$(cd "$1" && pwd)
mkdir -p "$2" && out=$(cd "$2" && pwd)
shift 2
steps=" ${*:-mx te census packers} "
work=/var/tmp/mxtree-mx
summary=$out/summary.txt
log=$out/log
export PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 TRITON_CACHE_DIR=$work/triton
mkdir -p "$work/logs"
: >"$summary"
: >"$log"

# shellcheck source=benchmarks/device_site.sh
. "$root/benchmarks/device_site.sh"

# Whether TE of a site runs beside its core 2.18.0 under the version of a tree, which is a local one.
beside() {
  set -e
  local old=transformer_engine-2.18.0 new=transformer_engine-2.18.0+mxtree.0 copy=$work/$1-local
  cp -rl "$work/$1" "$copy"
  cp -r "$copy/$old.dist-info" "$copy/$new.dist-info"
  rm -r "$copy/$old.dist-info"
  sed -i 's/^Version: 2.18.0$/Version: 2.18.0+mxtree.0/' "$copy/$new.dist-info/METADATA"
  sed -i "s/^$old.dist-info/$new.dist-info/" "$copy/$new.dist-info/RECORD"
  PYTHONPATH=$copy:$work/wheels python3 -c "
import torch, importlib.metadata
import transformer_engine.pytorch as te
te.Linear(64, 64, device='cuda')(torch.ones(32, 64, device='cuda'))
print('OK', importlib.metadata.version('transformer-engine'), te.__file__)"
}

export -f beside

cd "$root" || exit 1
say "$(python3 -c "
import sys, torch, triton
print(sys.version.split()[0], torch.__version__, triton.__version__, torch.cuda.get_device_name())")"
asked() { [[ $steps == *" $1 "* ]]; }

# pytest-benchmark, where it is installed, warns beside xdist, and warnings are errors.
pytest=(python3 -m pytest -q -p no:cacheprovider -p no:benchmark)
if asked te || asked packers; then
  step unpack 120 bash -c unpack
fi
if asked te; then
  timeout 280 bash -c build >"$work/logs/build" 2>&1 &
  building=$!
fi
# Mostly time to compile kernels: one process a core and a half.
asked mx && step mx 240 env PYTHONPATH=overlay "${pytest[@]}" -n "$(($(nproc) * 2 / 3))" tests/gpu/mx
if asked te; then
  patched=overlay:$work/patched:$work/megatron:$work/wheels
  step te-stub 150 env MXFLUX_TE=stub PYTHONPATH="$patched" "${pytest[@]}" tests/gpu/te
  built=0
  wait "$building" || built=$?
  cat "$work/logs/build" >>"$log"
  say "build of the extension: exit $built; $(tail -1 "$work/logs/build")"
  step te-compiled 150 env PYTHONPATH="$patched" "${pytest[@]}" tests/gpu/te
  step te-stock-control 60 env PYTHONPATH="overlay:$work/stock:$work/wheels" \
    "${pytest[@]}" tests/gpu/te/test_stock_defects.py --control
  step te-zero-patch 120 env MXFLUX_TE_ZERO_PATCH=1 \
    PYTHONPATH="overlay:$work/stock:$work/megatron:$work/wheels" "${pytest[@]}" tests/gpu/te
  step version-of-a-tree-patched 40 bash -c 'beside patched'
  step version-of-a-tree-stock 40 bash -c 'beside stock'
fi
asked census && step census 60 env PYTHONPATH=overlay \
  python3 benchmarks/census.py --device cuda --out "$out/census-h200.md"
left=$((475 - SECONDS))
asked packers && step packers "$((left > 60 ? left : 60))" env PYTHONPATH="overlay:$work/wheels" \
  python3 benchmarks/packers.py --device cuda --out "$out/packers-h200.md"
say "whole run"
cat "$out"/*-h200.md >>"$summary" 2>/dev/null || true
