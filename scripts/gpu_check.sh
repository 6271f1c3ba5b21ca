#!/usr/bin/env bash
# Everything that needs an NVIDIA GPU, in under 9 minutes: scripts/gpu_check.sh [--wheels DIR] [--out DIR]
#
# Needs CuPy and NumPy; JAX for the comparison with XLA, compute-sanitizer for the memory and race checks (both are left out, and said to be, where
# they are missing). Packages that the machine lacks (lark, ml_dtypes, click, rich) are taken from wheels in DIR, with no network:
#   pip download --no-deps -d wheels lark ml_dtypes click rich markdown-it-py mdurl pygments
# Writes DIR/<device>_<day>.json (default: scripts/bench/results). Exit status 0: all well, 1: something does not hold, 3: there is no GPU.
set -u
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 2
root=$PWD
wheels=
out=$root/scripts/bench/results
while [ $# -gt 0 ]; do
  case $1 in
    --wheels) wheels=${2:?--wheels needs a folder}; shift 2 ;;
    --out) out=${2:?--out needs a folder}; shift 2 ;;
    *) echo "usage: scripts/gpu_check.sh [--wheels DIR] [--out DIR]" >&2; exit 2 ;;
  esac
done
work=$(mktemp -d) || exit 2
trap 'rm -rf "$work"' EXIT
python=${PYTHON:-python3}
export PYTHONPATH=$root${PYTHONPATH:+:$PYTHONPATH} PYTHONUNBUFFERED=1 XLA_PYTHON_CLIENT_PREALLOCATE=false
export HLO_OPT_CACHE=${HLO_OPT_CACHE:-$work/cache}
if [ -n "$wheels" ]; then
  "$python" -m pip install -q --no-index --no-deps --no-compile --target "$work/site" "$wheels"/*.whl || exit 2
  export PYTHONPATH=$PYTHONPATH:$work/site
fi
if ! "$python" -c 'import click, lark, ml_dtypes, numpy, rich' 2>"$work/imports"; then
  tail -n 1 "$work/imports" >&2
  echo "nothing is checked: a package is missing; carry its wheel along (--wheels DIR)" >&2
  exit 2
fi
name=$("$python" -m scripts.gpu_checks device)
state=$?
echo "$name"
[ $state -eq 0 ] || exit $state

failed=()
part() { # part NAME SECONDS COMMAND...: one check, stopped after its time
  local label=$1 limit=$2 start=$SECONDS
  shift 2
  echo "== $label"
  timeout --kill-after=5 "$limit" "$@"
  local status=$?
  [ $status -eq 124 ] && echo "$label: stopped after $limit s"
  [ $status -eq 0 ] || failed+=("$label")
  echo "   $((SECONDS - start)) s"
}

part "NVRTC compiles every kernel of testdata" 100 "$python" -m scripts.compile_kernels --arch "$("$python" -c '
import cupy
print("sm_" + cupy.cuda.Device().compute_capability)')"
part "dumps agree with NumPy" 130 "$python" -m scripts.gpu_checks compare --seconds 110 --out "$work/compare.json"
part "drivers are emitted" 60 "$python" -m scripts.gpu_checks emit "$work/emitted"
sanitizer=$(command -v compute-sanitizer || echo "${CUDA_HOME:-/usr/local/cuda}/bin/compute-sanitizer")
if [ -x "$sanitizer" ]; then
  for tool in memcheck racecheck; do
    part "$tool" 60 "$sanitizer" --tool $tool --error-exitcode 99 --launch-timeout 60 "$python" -m scripts.gpu_checks drive "$work/emitted" --seconds 40
  done
else
  echo "== compute-sanitizer is not installed: memory and races are not checked"
  part "drivers run" 45 "$python" -m scripts.gpu_checks drive "$work/emitted" --seconds 40
fi
part "memory-bound programs against jax.jit and a copy" 110 "$python" -m scripts.bench.gpu --seconds 85 --out "$work/bench.json"
"$python" -m scripts.gpu_checks merge "$out" "$work/bench.json" "$work/compare.json"
if [ ${#failed[@]} -gt 0 ]; then
  printf 'does not hold: %s\n' "${failed[@]}"
  exit 1
fi
echo "all well"
