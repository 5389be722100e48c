#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Train Flux 535M on real pictures in BF16, MXFP4 and MXFP6 on one GPU without network.
#
#   benchmarks/device_train.sh FOLDER OUT [STEPS]     FOLDER is what benchmarks/collect_te.py made
#
# Writes OUT/summary.txt, OUT/log and OUT/runs.tgz: unpacked, `mxtree report compare` reads the runs.
set -u
root=$(cd "$(dirname "$0")/.." && pwd)
from=$(cd "$1" && pwd)
mkdir -p "$2" && out=$(cd "$2" && pwd)
steps=${3:-200}
work=/var/tmp/mxtree-train
summary=$out/summary.txt
log=$out/log
export PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 TRITON_CACHE_DIR=$work/triton
mkdir -p "$work/logs"
: >"$summary"
: >"$log"

# shellcheck source=benchmarks/device_site.sh
. "$root/benchmarks/device_site.sh"

cd "$root" || exit 1
step unpack 120 bash -c unpack
step build 280 bash -c build
short="schedule.train_iters=$steps,checkpoint.save_interval=null,checkpoint.save_final=false,checkpoint.keep=null,logging.interval=1"
train() { # NAME LIMIT RECIPE [OVERRIDES]
  step "$1" "$2" env PYTHONPATH="overlay:$work/patched:$work/megatron:$work/wheels" \
    python3 benchmarks/train.py "$work/runs" "recipes/h200/$3.yaml:$1:$short${4:+,$4}"
  grep '^RUN' "$work/logs/$1" | tee -a "$summary"
  tar czf "$out/runs.tgz" -C "$work" runs # after each: what is done comes back, whatever follows
}
train bf16 110 flux_535m_bf16
train bf16_other 75 flux_535m_bf16 schedule.seed=7
train mxfp6 110 flux_535m_mxfp6
train mxfp4 120 flux_535m_mxfp4
train mxfp4_te 90 flux_535m_mxfp4_te
say "whole run"
