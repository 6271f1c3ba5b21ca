"""Random loops against XLA:CPU: python -m scripts.random_loops [--count N] [--seed S]

Each loop (`tests/random_loops.py`) is fused, run by our kernels, and compared bit by bit with what XLA:CPU makes of the loop as it is. Prints how many became one launch, and each that differs, with
its seed. Exits 1 where one does.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from random import Random

import numpy as np

import hlo_opt
from hlo_opt.evaluate.inputs import module_inputs
from hlo_opt.runtime.executable import compile
from scripts.xla_cpu import Program

PASSES = "while-fusion,dce"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    random_loop = importlib.import_module("tests.random_loops").random_loop
    alone = wrong = 0
    for seed in range(given.seed, given.seed + given.count):
        text = random_loop(Random(seed))
        module = hlo_opt.parse(text)
        inputs = [np.rint(a * 4).astype(a.dtype) for a in module_inputs(module, seed=seed)]
        fused, _ = hlo_opt.fuse(module, passes=PASSES)
        alone += any(i.opcode == "fusion" for i in fused.entry.instructions)
        wanted = Program(text, optimized=False)(inputs)
        got = compile(fused, "host")(*inputs)
        if not all(np.array_equal(g, w) for g, w in zip(got, wanted, strict=True)):
            wrong += 1
            print(f"seed {seed}: differs")
    print(f"{given.count} loops, {alone} of them one launch, {wrong} differ from XLA:CPU")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
