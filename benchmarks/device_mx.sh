#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# All of MX that needs a GPU, in one command on a machine without network; under 8 minutes on an H200.
#
#   benchmarks/device_mx.sh FOLDER OUT        FOLDER is what benchmarks/collect_te.py made
#
# Writes OUT/summary.txt (a line a step, then the tables), OUT/log (everything), the tables of the
# benchmarks, and the extension that it built: put that into FOLDER and the next run is 100 s shorter.
set -u
root=$(cd "$(dirname "$0")/.." && pwd)
from=$(cd "$1" && pwd)
mkdir -p "$2" && out=$(cd "$2" && pwd)
work=/var/tmp/mxtree-mx
summary=$out/summary.txt
log=$out/log
export PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 TRITON_CACHE_DIR=$work/triton
mkdir -p "$work/logs"
: >"$summary"
: >"$log"

say() { echo "[$SECONDS s] $*" | tee -a "$summary" | tee -a "$log"; }

# step NAME LIMIT COMMAND...: run it, keep what it printed, go on whatever it returned.
step() {
  local name=$1 limit=$2 start=$SECONDS rc=0
  shift 2
  printf '\n===== %s: %s\n' "$name" "$*" >>"$log"
  timeout "$limit" "$@" >"$work/logs/$name" 2>&1 || rc=$?
  cat "$work/logs/$name" >>"$log"
  say "$name: exit $rc, $((SECONDS - start)) s; $(grep -E '(passed|failed|error).* in [0-9.]+s|^OK' "$work/logs/$name" | tail -1)"
  grep -E '^(FAILED|ERROR) ' "$work/logs/$name" | tee -a "$summary"
}

unpack() {
  set -e
  python3 -m pip install -q --no-index --no-deps --no-compile --target "$work/wheels" "$from"/whl/*.whl
  mkdir -p "$work/stock" "$work/patched" "$work/megatron" "$work/source"
  python3 -m zipfile -e "$from"/transformer_engine-*-py3-none-any.whl "$work/stock"
  tar xzf "$from/patched-te.tgz" -C "$work/patched"
  tar xzf "$from/megatron.tgz" -C "$work/megatron"
  tar xzf "$from/te_torch.tgz" -C "$work/source" --strip-components=1
  python3 -c "
import lzma, shutil
with lzma.open('$from/core.so.xz') as packed, open('$work/core.so', 'wb') as plain:
    shutil.copyfileobj(packed, plain, 1 << 24)"
  for site in stock patched; do
    mkdir -p "$work/$site/transformer_engine/wheel_lib"
    ln "$work/core.so" "$work/$site/transformer_engine/wheel_lib/libtransformer_engine.so"
    cp -r "$from"/transformer_engine_cu13-*.dist-info "$work/$site"/
  done
  echo OK
}

build() {
  set -e
  if ! ls "$from"/transformer_engine_torch*.so >/dev/null 2>&1; then
    cd "$work/source"
    CPATH=/usr/local/cuda/include:$nvidia/cudnn/include:$nvidia/nccl/include \
      CUDA_HOME=/usr/local/cuda NVTE_WITH_NCCL_EP=0 NVTE_PYTORCH_FORCE_BUILD=TRUE \
      PYTHONPATH=$work/wheels MAX_JOBS=$(nproc) nice python3 setup.py build_ext --inplace
    strip --strip-unneeded transformer_engine_torch*.so
    cp transformer_engine_torch*.so "$out"/
  else
    cd "$from"
  fi
  for site in stock patched; do
    cp transformer_engine_torch*.so "$work/$site/transformer_engine/wheel_lib/"
  done
  echo OK
}

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

nvidia=$(python3 -c "import nvidia; print(list(nvidia.__path__)[0])")
# The pip cuDNN of torch, and not the system's beside it.
export CUDNN_HOME=$nvidia/cudnn CUDNN_PATH=$nvidia/cudnn
export LD_LIBRARY_PATH=$nvidia/cudnn/lib:$nvidia/cu13/lib:$nvidia/nccl/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export root from out work nvidia
export -f unpack build beside

cd "$root" || exit 1
say "$(python3 -c "
import sys, torch, triton
print(sys.version.split()[0], torch.__version__, triton.__version__, torch.cuda.get_device_name())")"
step unpack 120 bash -c unpack
timeout 280 bash -c build >"$work/logs/build" 2>&1 &
building=$!

pytest=(python3 -m pytest -q -p no:cacheprovider)
patched=overlay:$work/patched:$work/megatron:$work/wheels
step mx 170 env PYTHONPATH=overlay "${pytest[@]}" tests/gpu/mx
step te-stub 120 env MXFLUX_TE=stub PYTHONPATH="$patched" "${pytest[@]}" tests/gpu/te
built=0
wait "$building" || built=$?
cat "$work/logs/build" >>"$log"
say "build of the extension: exit $built; $(tail -1 "$work/logs/build")"
step te-compiled 150 env PYTHONPATH="$patched" "${pytest[@]}" tests/gpu/te
step te-stock-control 60 env PYTHONPATH="overlay:$work/stock:$work/wheels" \
  "${pytest[@]}" tests/gpu/te/test_stock_defects.py --control
step version-of-a-tree-patched 40 bash -c 'beside patched'
step version-of-a-tree-stock 40 bash -c 'beside stock'
step census 60 env PYTHONPATH=overlay \
  python3 benchmarks/census.py --device cuda --out "$out/census-h200.md"
left=$((475 - SECONDS))
step packers "$((left > 60 ? left : 60))" env PYTHONPATH="overlay:$work/wheels" \
  python3 benchmarks/packers.py --device cuda --out "$out/packers-h200.md"
say "whole run"
cat "$out"/*-h200.md >>"$summary"
