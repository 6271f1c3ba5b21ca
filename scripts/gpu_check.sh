#!/usr/bin/env bash
# Everything that needs an NVIDIA GPU, in under 9 minutes: scripts/gpu_check.sh [--wheels DIR] [--out DIR] [--more DIR] [--minutes N]
#
# Needs Python from 3.11 on, CuPy and NumPy; JAX for the comparison with XLA, compute-sanitizer for the memory and race checks (both are left out, and said to be,
# where they are missing). Packages that the machine lacks (lark, ml_dtypes, click, rich) are taken from wheels in DIR, with no network:
#   pip download --no-deps -d wheels lark ml_dtypes click rich markdown-it-py mdurl pygments
# --more DIR compares the dumps of DIR as well, after our own. --minutes divides another time between the parts.
# Writes DIR/<device>_<day>.json (default: scripts/bench/results), which is complete after each part: what is stopped leaves what it had.
# Exit status 0: all well, 1: something does not hold, 2: nothing could start, 3: there is no GPU.
set -u
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 2
root=$PWD
wheels=
out=$root/scripts/bench/results
more=()
minutes=9
while [ $# -gt 0 ]; do
  case $1 in
    --wheels) wheels=$(realpath "${2:?--wheels needs a folder}") || exit 2; shift 2 ;;
    --out) out=$(realpath -m "${2:?--out needs a folder}"); shift 2 ;;
    --more) more=(--more "$(realpath "${2:?--more needs a folder}")"); shift 2 ;;
    --minutes) minutes=${2:?--minutes needs a number}; shift 2 ;;
    *) echo "usage: scripts/gpu_check.sh [--wheels DIR] [--out DIR] [--more DIR] [--minutes N]" >&2; exit 2 ;;
  esac
done
case $minutes in '' | *[!0-9]* | 0) echo "--minutes needs a whole number" >&2; exit 2 ;; esac
end=$((SECONDS + minutes * 60 - 20)) # the last seconds are for ends
work=$(mktemp -d) || exit 2
trap 'rm -rf "$work"' EXIT
python=${PYTHON:-python3}
export PYTHONPATH=$root${PYTHONPATH:+:$PYTHONPATH} PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
export XLA_PYTHON_CLIENT_PREALLOCATE=false TF_CPP_MIN_LOG_LEVEL=3 OMP_NUM_THREADS=2 OPENBLAS_NUM_THREADS=2
export HLO_OPT_CACHE=${HLO_OPT_CACHE:-$work/cache} CUPY_CACHE_DIR=${CUPY_CACHE_DIR:-$work/cupy}
if [ -n "$wheels" ]; then # a wheel is an archive of what is imported: no pip is needed; what the machine has itself is left as it is
  "$python" - "$work/site" "$wheels"/*.whl <<'END' || exit 2
import importlib.util, sys, zipfile

folder, *wheels = sys.argv[1:]
for path in wheels:
    with zipfile.ZipFile(path) as wheel:
        tops = {name.split("/")[0].removesuffix(".py") for name in wheel.namelist()}
        if not all(importlib.util.find_spec(top) for top in tops if top.isidentifier()):
            wheel.extractall(folder)
            print(f"from {path.rpartition('/')[2]}")
END
  export PYTHONPATH=$PYTHONPATH:$work/site
fi
if ! "$python" -c 'import click, lark, ml_dtypes, numpy, rich, hlo_opt' 2>"$work/imports"; then
  tail -n 1 "$work/imports" >&2
  echo "nothing is checked: a package is missing; carry its wheel along (--wheels DIR)" >&2
  exit 2
fi
name=$(timeout 60 "$python" -m scripts.gpu_checks device)
state=$?
echo "$name"
[ $state -eq 0 ] || exit $state
name=${name##*$'\n'}
day=$(date -u +%Y-%m-%d)

results() {
  "$python" -m scripts.gpu_checks merge "$out" "$work"/*.json --device "$name" --day "$day"
}

failed=()
# part NAME SHARE COMMAND...: one check in so many hundredths of all the time, told to end by itself (--seconds) and stopped 15 s later. The shares are more than
# 100 in all, since most parts end early; the last ones take what is left.
part() {
  local label=$1 limit=$(($2 * minutes * 60 / 100)) start=$SECONDS
  shift 2
  [ $limit -le $((end - SECONDS)) ] || limit=$((end - SECONDS))
  echo "== $label"
  if [ $limit -lt 5 ]; then
    echo "$label: not reached in time"
    failed+=("$label")
    return
  fi
  timeout --kill-after=5 $((limit + 15)) "$@" --seconds "$limit"
  local status=$?
  [ $status -ne 124 ] && [ $status -ne 137 ] || echo "$label: stopped after $((limit + 15)) s"
  [ $status -eq 0 ] || failed+=("$label")
  echo "   $((SECONDS - start)) s"
  results
}

part "dumps agree with NumPy, with CUDA graphs and without" 24 "$python" -m scripts.gpu_checks compare --out "$work/compare.json"
part "memory-bound programs against jax.jit and a copy" 9 "$python" -m scripts.bench.gpu --out "$work/bench.json"
part "kernels beside their price, a copy and jax.jit" 24 "$python" -m scripts.bench.kernel_times --out "$work/kernel_times.json"
part "drivers run" 5 "$python" -m scripts.gpu_checks drivers "$work/emitted" --out "$work/drivers.json"
sanitizer=
for found in compute-sanitizer "${CUDA_HOME:-/usr/local/cuda}/bin/compute-sanitizer" /usr/local/cuda*/bin/compute-sanitizer \
  /opt/nvidia/*/compute-sanitizer /opt/cuda/bin/compute-sanitizer /usr/local/cuda*/compute-sanitizer/compute-sanitizer; do
  if [ -z "$sanitizer" ]; then sanitizer=$(command -v "$found" || true); fi
done
if [ -n "$sanitizer" ]; then
  part "racecheck and memcheck of the drivers" 7 "$python" -m scripts.gpu_checks sanitize "$work/emitted" --sanitizer "$sanitizer" --out "$work/sanitize.json"
else
  echo "== compute-sanitizer is not installed: memory and races are not checked"
fi
if "$python" -c 'import hypothesis' 2>/dev/null; then
  part "random modules" 7 "$python" -m scripts.gpu_checks random --out "$work/random.json"
else
  echo "== hypothesis is not installed: no random modules"
fi
part "many small kernels, with CUDA graphs and without" 4 "$python" -m scripts.gpu_checks graphs --out "$work/graphs.json"
if "$python" -c 'import sys, hlo_opt.jax.cuda; sys.exit(not hlo_opt.jax.cuda.has_cuda())' 2>/dev/null && command -v "${CXX:-g++}" >/dev/null; then
  part "the hook inside jax.jit, step by step" 20 env JAX_PLATFORMS=cuda,cpu "$python" -m scripts.gpu_hook --out "$work/hook_steps.json"
  part "programs inside jax.jit, with the hook and without" 15 env JAX_PLATFORMS=cuda,cpu "$python" -m scripts.bench.jax_hook \
    --list programs --rounds 15 --each 0.5 --min-saving-us 0 --out "$work/hook.json"
else
  echo "== JAX has no GPU, or there is no C++ compiler: the hook inside jax.jit is not checked"
fi
if [ ${#more[@]} -gt 0 ]; then
  part "more dumps" 100 "$python" -m scripts.gpu_checks compare --name more "${more[@]}" --out "$work/more.json"
fi
if [ ${#failed[@]} -gt 0 ]; then
  printf 'does not hold: %s\n' "${failed[@]}"
  exit 1
fi
echo "all well"
