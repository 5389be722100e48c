# SPDX-License-Identifier: Apache-2.0
# Sourced by the device scripts: a compiled TransformerEngine, stock and patched, and Megatron-LM from the
# FOLDER that benchmarks/collect_te.py made. Wants root, from, out, work, summary and log set.
# shellcheck shell=bash disable=SC2154

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

nvidia=$(python3 -c "import nvidia; print(list(nvidia.__path__)[0])")
# The pip cuDNN of torch, and not the system's beside it.
export CUDNN_HOME=$nvidia/cudnn CUDNN_PATH=$nvidia/cudnn
export LD_LIBRARY_PATH=$nvidia/cudnn/lib:$nvidia/cu13/lib:$nvidia/nccl/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export root from out work nvidia
export -f unpack build
