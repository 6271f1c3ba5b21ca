"""Write what XLA:CPU makes of HLO texts: python -m scripts.evaluate DIR OUT [--only WORD]

For each DIR/NAME.hlo, OUT/NAME.hlo.npz gets seeded inputs `in0, in1, ...` and XLA's outputs `out0, out1, ...`, types
that NumPy lacks as their raw bits, and OUT/index.json says how each text fared and what the types are:
{"NAME.hlo": {"status": "ok", "in": ["float32"], "out": ["bfloat16"]}}. Other statuses have a reason under "why":

fail       XLA:CPU does not take the text, or has no kernel for a custom call
crash      it ended, or did not end in time
unstable   two runs differ, or the outputs hang on the last bit of the inputs
skip       the case asks for it

A case in `scripts/programs` may bound its inputs and name a twin: a case of the same parameters and results whose text
runs in its place, as for the custom call `cu_threefry2x32`, which XLA:CPU lacks.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np

from scripts.programs import all_cases
from scripts.programs.case import Case
from scripts.xla_cpu import Array, Leaf, Program, raw, sample_inputs

SECONDS = 60.0
TRIES = 5
TOLERANCE = {"float64": 1e-8, "complex128": 1e-8, "float32": 3e-4, "complex64": 3e-4}
"""How far outputs may move, relative to their size, when each input moves by about one unit in its last place."""


@dataclass(frozen=True)
class Entry:
    """What index.json says of a text."""

    status: str
    why: str = ""
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()

    def json(self) -> dict[str, str | list[str]]:
        """The entry as it is written."""
        if self.status != "ok":
            return {"status": self.status, "why": self.why}
        return {"status": "ok", "in": list(self.inputs), "out": list(self.outputs)}


def case_of(path: Path) -> Case | None:
    """The case that a dump was made of, if it is one of ours."""
    return all_cases().get(path.name.split(".")[0])


def parameters_of(case: Case | None, program: Program) -> list[Leaf]:
    """The program's parameters, with the ranges that the case gives them."""
    if case is None:
        return program.parameters
    leaves = [Leaf(arg.shape, arg.struct().dtype, arg.low, arg.high) for arg in case.leaves()]
    shapes = [(leaf.shape, leaf.dtype) for leaf in leaves]
    if shapes != [(leaf.shape, leaf.dtype) for leaf in program.parameters]:
        raise ValueError(f"the parameters of {case.name} are not those of its text; run python -m scripts.dump")
    return leaves


def nudged(array: Array, generator: np.random.Generator) -> Array:
    """The array with each number a unit in the last place up or down; short floats and integers stay as they are."""
    if array.dtype.name not in TOLERANCE:
        return array
    sign = generator.choice([-1.0, 1.0], array.shape)
    return np.asarray(array * (1.0 + sign * np.finfo(array.dtype).eps)).astype(array.dtype)


def differs(first: Array, second: Array) -> bool:
    """Whether two outputs differ by more than rounding explains."""
    if first.dtype.name not in TOLERANCE:
        return first.tobytes() != second.tobytes()
    finite = np.isfinite(first)
    if not np.array_equal(first[~finite], second[~finite], equal_nan=True):
        return True
    if not finite.any():
        return False
    size = np.abs(first[finite])
    limit = TOLERANCE[first.dtype.name] * (np.maximum(size, np.median(size)) + 1e-2)
    return bool(np.any(np.abs(first[finite] - second[finite]) > limit))


def unstable(program: Program, inputs: Sequence[Array], outputs: Sequence[Array]) -> str | None:
    """Why these outputs are no good to compare with."""
    if any(a.tobytes() != b.tobytes() for a, b in zip(outputs, program(inputs), strict=True)):
        return "two runs differ"
    generator = np.random.default_rng(1)
    moved = program([nudged(array, generator) for array in inputs])
    for index, (output, other) in enumerate(zip(outputs, moved, strict=True)):
        if differs(output, other):
            return f"out{index} hangs on the last bit of the inputs"
    return None


def stable_run(program: Program, parameters: Sequence[Leaf], seed: int) -> tuple[list[Array], list[Array]] | str:
    """Inputs and outputs that can be compared with, from the first seed that has them; or why there are none."""
    why = ""
    for attempt in range(TRIES):
        inputs = sample_inputs(parameters, seed + attempt)
        outputs = program(inputs)
        why = unstable(program, inputs, outputs) or ""
        if not why:
            return inputs, outputs
    return why


def evaluate(path: Path, out: Path) -> Entry:
    """Run one text and write its arrays."""
    case = case_of(path)
    if case is not None and case.skip is not None:
        return Entry("skip", case.skip)
    runnable = path if case is None or case.twin is None else path.with_name(f"{case.twin}.hlo")
    seed = zlib.crc32((path.name if case is None else case.name).encode())
    try:
        program = Program(runnable.read_text(encoding="utf-8"))
        run = stable_run(program, parameters_of(case, program), seed)
    except (RuntimeError, ValueError, TypeError, OSError) as error:
        return Entry("fail", str(error).split("\n")[0][:300])
    if isinstance(run, str):
        return Entry("unstable", run)
    inputs, outputs = run
    arrays = {f"in{i}": raw(array) for i, array in enumerate(inputs)}
    arrays |= {f"out{i}": raw(array) for i, array in enumerate(outputs)}
    np.savez_compressed(out / f"{path.name}.npz", allow_pickle=False, **arrays)
    return Entry("ok", "", tuple(x.dtype.name for x in inputs), tuple(x.dtype.name for x in outputs))


def work(pipe: Connection, out: Path) -> None:
    """Evaluate the paths that come through the pipe, in a process of its own: XLA may end it."""
    while True:
        path = pipe.recv()
        pipe.send(evaluate(path, out))


class Worker:
    """A process that evaluates texts and is started anew when it dies."""

    def __init__(self, out: Path) -> None:
        self.out = out
        self.start()

    def start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=work, args=(theirs, self.out), daemon=True)
        self.process.start()
        theirs.close()

    def stop(self) -> None:
        self.process.kill()
        self.process.join()
        self.pipe.close()

    def __call__(self, path: Path) -> Entry:
        self.pipe.send(path)
        try:
            if self.pipe.poll(SECONDS):
                entry: Entry = self.pipe.recv()
                return entry
            why = f"no result in {SECONDS:.0f} seconds"
        except EOFError:
            why = "the process ended"
        self.stop()
        self.start()
        return Entry("crash", why)


def main() -> int:
    """The command; its exit code is 1 when a text has no outputs that was not meant to be skipped."""
    assert __doc__ is not None
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path, metavar="DIR")
    parser.add_argument("out", type=Path, metavar="OUT")
    parser.add_argument(
        "--only", metavar="WORD", help="only texts whose name contains this; the index keeps the others"
    )
    arguments = parser.parse_args()
    directory: Path = arguments.directory
    out: Path = arguments.out
    only: str | None = arguments.only
    out.mkdir(parents=True, exist_ok=True)
    index_path = out / "index.json"
    index: dict[str, dict[str, str | list[str]]] = {}
    if only is not None and index_path.exists():
        index = json.loads(index_path.read_text(encoding="utf-8"))
    worker = Worker(out)
    counts: dict[str, int] = {}
    for path in sorted(directory.glob("*.hlo")):
        if only is not None and only not in path.name:
            continue
        entry = worker(path)
        counts[entry.status] = counts.get(entry.status, 0) + 1
        index[path.name] = entry.json()
        if entry.status != "ok":
            print(f"{path.name}: {entry.status}: {entry.why}", file=sys.stderr)
    worker.stop()
    index_path.write_text(json.dumps(index, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    print(", ".join(f"{number} {status}" for status, number in sorted(counts.items())) or "no texts", file=sys.stderr)
    return int(any(status not in ("ok", "skip") for status in counts))


if __name__ == "__main__":
    sys.exit(main())
