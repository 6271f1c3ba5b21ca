"""How far the host's functions of f32 are from the exact values: python -m scripts.function_errors [OPCODE...] [--every
N]

Each function of `host_math.h`, as kernels call it, of all 2^32 floats (or of every Nth block of them), against the C
library's in double: the largest error in ULP and where it is, and what the op table allows. Sines, cosines and tangents
also by `hlo::turn`, which takes many at a time. NaNs, infinities and signs of zeros have to agree. Exit code 1 where a
function is worse than the table says. A function takes about a minute.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import sys
from concurrent.futures import ThreadPoolExecutor

from hlo_opt.codegen.lanes import SHIMS, shim
from hlo_opt.ir import ELEMENT_TYPES
from hlo_opt.ops import find
from hlo_opt.runtime.host.library import load

FUNCTIONS = {
    "acos": "acos", "acosh": "acosh", "asin": "asin", "asinh": "asinh", "atanh": "atanh", "cbrt": "cbrt",
    "cosine": "cos", "cosh": "cosh", "erf": "erf", "exponential": "exp",
    "exponential-minus-one": "expm1", "log": "log", "log-plus-one": "log1p", "sine": "sin", "sinh": "sinh",
    "tan": "tan", "tanh": "tanh",
}  # fmt: skip
"""By opcode, C's name."""
TURNS = {"sine": "true, false, false>(x, y, 0, "
                 "0", "cosine": "false, true, false>(x, 0, y, 0", "tan": "false, false, true>(x, 0, 0, y"}  # fmt: skip
BLOCK = 1 << 12

FRAME = """
namespace errors {
const long long N = %d;
%s
}
"""
WAY = """
extern "C" __attribute__((simd("notinbranch"))) double %(c)s(double);
extern "C" __attribute__((visibility("default"))) double worst_%(name)s(
    long long first, long long last, long long step, unsigned int* where) {
  static __thread float x[N], y[N];
  static __thread double exact[N], error[N];
  double worst = 0;
  for (long long block = first; block < last; block += step) {
    for (long long i = 0; i < N; ++i) x[i] = hlo::bits_as<float>((unsigned int)(block * N + i));
    %(computed)s
#pragma omp simd
    for (long long i = 0; i < N; ++i) exact[i] = %(c)s((double)x[i]);
#pragma omp simd
    for (long long i = 0; i < N; ++i) {
      const float want = (float)exact[i], got = y[i];
      const int exponent = (hlo::bits_as<int>(hlo::magnitude_of(want)) >> 23) - 150;
      const double unit = hlo::two_to((double)(exponent < -149 ? -149 : exponent));
      const double off = ((double)got - exact[i]) / unit, far = off < 0.0 ? -off : off;
      const bool finite = hlo::magnitude_of(want) < __builtin_inff() & hlo::magnitude_of(got) < __builtin_inff();
      const bool same =
          hlo::bits_as<unsigned int>(want) == hlo::bits_as<unsigned int>(got) | (want != want & got != got);
      const bool signs = want != 0.0f | got != 0.0f | hlo::sign_of(want) == hlo::sign_of(got);
      error[i] = finite & signs ? far : (same ? 0.0 : 1e9);
    }
    for (long long i = 0; i < N; ++i)
      if (error[i] > worst) worst = error[i], *where = (unsigned int)(block * N + i);
  }
  return worst;
}
"""


def ways() -> dict[str, tuple[str, str]]:
    """By name: the opcode, and how a block of values is computed."""
    found = {o: (o, f"\n#pragma omp simd\n    for (long long i = 0; i < N; ++i) y[i] = "
                    f"{c}f(x[i]);") for o, c in FUNCTIONS.items()}  # fmt: skip
    found |= {f"{o}, many": (o, f"hlo::turn<{arguments}, N);") for o, arguments in TURNS.items()}
    return found


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("opcodes", nargs="*", metavar="OPCODE")
    parser.add_argument("--every", type=int, default=1, metavar="N", help=f"of {BLOCK} floats at a time, every Nth")
    given = parser.parse_args()
    chosen = {n: w for n, w in ways().items() if not given.opcodes or w[0] in given.opcodes}
    numbered = {name: number for number, name in enumerate(chosen)}
    texts = [WAY % {"c": FUNCTIONS[o], "name": numbered[n], "computed": c} for n, (o, c) in chosen.items()]
    unit = "".join(map(shim, SHIMS)) + FRAME % (BLOCK, "".join(texts))
    library = load([unit], ("-lmvec", "-lm"))
    blocks, parts = (1 << 32) // BLOCK, 4 * (os.cpu_count() or 1)
    failed = False
    for name, (opcode, _) in chosen.items():
        worst = library[f"worst_{numbered[name]}"]
        worst.restype = ctypes.c_double
        worst.argtypes = [ctypes.c_longlong] * 3 + [ctypes.c_void_p]

        def of_part(part: int, worst: ctypes._NamedFuncPointer = worst) -> tuple[float, int]:
            where = ctypes.c_uint(0)
            first = part * blocks // parts
            error = worst(first, (part + 1) * blocks // parts, given.every, ctypes.byref(where))
            return error, where.value

        with ThreadPoolExecutor(os.cpu_count()) as pool:
            error, where = max(pool.map(of_part, range(parts)))
        spec = find(opcode)
        assert spec is not None and spec.tolerance is not None
        allowed = spec.tolerance(ELEMENT_TYPES["f32"])
        at = ctypes.c_float.from_buffer(ctypes.c_uint(where)).value
        failed |= error > allowed
        print(f"{name:22}  {error:8.3f} ULP at {at:.9g} (0x{where:08x}), allowed {allowed:g}", flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
