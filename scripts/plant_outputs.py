"""Wrong outputs that `check` must not accept: `python -m scripts.plant_outputs [--backend host] [--seed 0] [FILE...]`.

Every output with floating-point values of every dump (testdata/dumps without FILE) is replaced by zeros, its negative,
its double, itself reversed, itself times 1.05 and times 1.01. A plant that changes no bit is left out. One is accepted
when every element is within its bound, whether the output is called weak or not. With --single, one element at a time
is changed by 5 % as well, drawn by seed. Prints what was accepted, the outputs that are weak with the reasons, and how
often outputs agree as they are. Exit status 1 when zeros, negatives, doubles, reversals or 5 % more are accepted, when
1 % more is accepted in f32 or f64, or in a narrower type in an output that is not called weak or in more than three, or
when an output differs as it is.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import hlo_opt
from hlo_opt.evaluate import module_inputs as sample_inputs
from hlo_opt.runtime.differences import compare_output, is_floating
from hlo_opt.runtime.numpy import Reference
from hlo_opt.runtime.rounding.analysis import analyse
from hlo_opt.runtime.rounding.verdict import compared, enclosures

DUMPS = Path(__file__).resolve().parents[1] / "testdata" / "dumps"

Array = Any


def scaled(factor: float) -> Callable[[Array], Array]:
    def plant(array: Array) -> Array:
        if array.dtype.kind == "c":
            return (array * factor).astype(array.dtype)
        return (array.astype(np.float64) * factor).astype(array.dtype)

    return plant


PLANTS: dict[str, Callable[[Array], Array]] = {
    "zeros": lambda a: np.zeros_like(a),
    "negative": lambda a: (-a).astype(a.dtype),
    "double": scaled(2.0),
    "reversed": lambda a: a.reshape(-1)[::-1].reshape(a.shape),
    "+5%": scaled(1.05),
    "+1%": scaled(1.01),
}


def is_equal(a: Array, b: Array) -> bool:
    """Bit for bit, and zeros of both signs count as one."""
    same = (a == b) | ((a != a) & (b != b))
    return bool(np.all(same))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument(
        "--backend", default="", help="plant into what a backend gives; without it, into the reference's outputs"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--single", type=int, default=0, metavar="N", help="also change N single elements of each output by 5%%"
    )
    arguments = parser.parse_args()
    made, accepted, singles = Counter[str](), Counter[str](), Counter[str]()
    weak: list[str] = []
    told: list[str] = []
    bad = 0
    narrow_weak = 0
    for path in arguments.files or sorted(DUMPS.glob("*.hlo")):
        module = hlo_opt.parse(path.read_text(), filename=str(path))
        inputs = sample_inputs(module, arguments.seed)
        expected = Reference(module).run(inputs)
        actual = expected
        if arguments.backend:
            actual = hlo_opt.compile(hlo_opt.fuse(module)[0], backend=arguments.backend)(*inputs)
        started = time.monotonic()
        analysis = analyse(module, inputs, arguments.seed)
        bounds = enclosures(analysis, expected)
        seconds = time.monotonic() - started
        honest = compared(module, expected, actual, analysis)
        for report in honest:
            if not report.ok:
                bad += 1
                told.append(f"{path.name} out{report.output} differs as it is: {report.first}")
            if report.weak:
                weak.append(f"{path.name} out{report.output} {report.type}{list(report.dimensions)}: {report.weak}")
        generator = np.random.default_rng(arguments.seed)
        for number, array in enumerate(actual):
            if not is_floating(array.dtype):
                continue
            loose = bool(honest[number].weak)
            kind = "narrow" if array.dtype.itemsize < 4 else "wide"
            for name, plant in PLANTS.items():
                with np.errstate(all="ignore"):
                    wrong = plant(array)
                if is_equal(wrong, array):
                    continue
                key = f"{name} {kind}"
                made[key] += 1
                if not compare_output(number, expected[number], wrong, bounds[number]).ok:
                    continue
                accepted[key] += 1
                word = "weak" if loose else "NOT called weak"
                told.append(f"{path.name} out{number} {array.dtype}{list(array.shape)}: {name} accepted, {word}")
                if name != "+1%" or kind == "wide" or not loose:
                    bad += 1
                else:
                    narrow_weak += 1
            for _ in range(arguments.single if array.size else 0):
                place = int(generator.integers(array.size))
                wrong = np.array(array)
                wrong.reshape(-1)[place : place + 1] = scaled(1.05)(array.reshape(-1)[place : place + 1])
                if not is_equal(wrong, array):
                    singles["made"] += 1
                    singles["accepted"] += compare_output(number, expected[number], wrong, bounds[number]).ok
        print(f"{path.name}: {len(actual)} outputs, analysed in {seconds:.2f} s", file=sys.stderr)
    print("plants made and accepted:")
    for key in made:
        print(f"  {key:16} {made[key]:5} {accepted[key]:5}")
    if singles:
        print(f"  single elements  {singles['made']:5} {singles['accepted']:5}")
    print(f"accepted, or differing as they are ({len(told)}):", *told, sep="\n  ")
    print(f"weak outputs ({len(weak)}):", *weak, sep="\n  ")
    return 1 if bad or narrow_weak > 3 else 0


if __name__ == "__main__":
    sys.exit(main())
