"""Whether a module stays the module that it is on its way through other forms: python -m scripts.forms OUT FILE|DIR...
[--evaluate]

For each HLO text: to an HloModuleProto and back, where XLA must print the same text and we must read the same module;
to StableHLO text and bytecode and back, where layouts, aliases and fusions are lost and nothing else (with --evaluate:
drawn inputs give the same bits in the interpreter). OUT gets a line per file; what is there already is not done again.
At the end a table: what jaxlib's own converters refuse, by its message. Exit status 1 where a form changed a module.
"""

from __future__ import annotations

import argparse
import collections
import json
import re
import sys
from pathlib import Path

import hlo_opt
from hlo_opt.analysis.graph.digest import module_digest
from hlo_opt.cli.convert import CONFIGURED
from hlo_opt.diag import HloOptError
from hlo_opt.evaluate import evaluate
from hlo_opt.evaluate.inputs import module_inputs
from hlo_opt.evaluate.memory import check_memory
from hlo_opt.forms.kinds import Form
from hlo_opt.ir import Module
from hlo_opt.jax.conversion import NOT_CONVERTED, converted
from hlo_opt.ops.collective.module_devices import counts
from hlo_opt.ops.control.meaning import same_bits
from scripts.forked_converter import forked_converter

LIMIT = 4 << 30
"""Bytes that evaluating a module may hold."""
STEPS = 5000
"""Rounds of loops after which a module is not evaluated: a text of a test may go on for 2^31."""
NO_CHANNEL = ", channel_id=0"
"""A protobuf has no zeros: a channel with this number is none."""
_CONFIGURED = re.compile(rf", (?:{'|'.join(CONFIGURED)})=(?:\{{[^}}]*\}}|\w+)")


def went(text: str, name: str, evaluates: bool) -> dict[str, str]:
    """How a module fared, a word or a message for each form."""
    try:
        plain = converted(text.encode(), Form.TEXT, "hlo", name).decode()
    except HloOptError as error:
        return {"text": f"refused: {message(error)}"}
    found = {"text": "read"}
    proto = converted(text.encode(), Form.TEXT, "pb", name)
    try:
        back = converted(proto, Form.MODULE, "hlo", name).decode()
    except HloOptError as error:  # XLA does not read what it wrote itself
        return {**found, "pb": f"refused: {message(error)}"}
    head, _, rest = plain.partition("\n")
    plain = f"{_CONFIGURED.sub('', head)}\n{rest.replace(NO_CHANNEL, '')}"
    same = back == plain and module_digest(_read(back)) == module_digest(_read(plain))
    found["pb"] = "same" if same else f"differs: {difference(plain, back)}"
    for form, to in ((Form.MLIR, "mlir"), (Form.BYTECODE, "mlirbc")):
        try:
            made = converted(proto, Form.MODULE, to, name)
        except HloOptError as error:
            found[to] = f"refused: {message(error)}"
            continue
        try:
            again = converted(made, form, "hlo", name).decode()
            found[to] = _compared(back, again) if evaluates and to == "mlir" else "read"
        except HloOptError as error:
            by_jaxlib = error.code == NOT_CONVERTED  # what jaxlib wrote itself
            found[to] = f"{'refused on the way back' if by_jaxlib else 'not read again'}: {message(error)}"
    return found


def _read(text: str) -> Module:
    return hlo_opt.parse(text)


def _compared(first: str, second: str) -> str:
    """Whether both give the same bits on drawn inputs in the interpreter, else how far apart they are."""
    modules = [_read(first), _read(second)]
    if any(counts(module) != (1, 1) for module in modules):
        return "read, for several devices"
    try:
        check_memory(modules[0], LIMIT, drawn=True)
        inputs = module_inputs(modules[0], 0)
        outputs = [evaluate(module, inputs, memory_limit=LIMIT, max_steps=STEPS) for module in modules]
    except HloOptError as error:
        return f"not evaluated: {message(error)}"
    if all(same_bits(a, b) for a, b in zip(*outputs, strict=True)):
        return "equal"
    return f"differs: {difference(str(outputs[0]), str(outputs[1]))}"


def message(error: HloOptError) -> str:
    """An error without its file."""
    return f"{error.code} {error.message}"


def difference(first: str, second: str) -> str:
    """The first lines that differ."""
    pairs = zip(first.splitlines(), second.splitlines(), strict=False)
    for a, b in pairs:
        if a != b:
            at = next((n for n, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
            return f"{a[max(0, at - 40) : at + 120]!r} and {b[max(0, at - 40) : at + 120]!r}"
    return "one is longer"


def general(found: str) -> str:
    """A message without the names and numbers of one module."""
    return re.sub(r"\d+", "N", re.sub(r"[%\"'`][\w.\-]+[\"'`]?", "X", found))[:140]


def main() -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("--evaluate", action="store_true")
    options = parser.parse_args()
    lines = options.out.read_text(encoding="utf-8").splitlines() if options.out.exists() else []
    done = {row["file"]: row for row in map(json.loads, lines)}
    paths = [p for given in options.files for p in (sorted(given.glob("*.hlo")) if given.is_dir() else [given])]
    with options.out.open("a", encoding="utf-8") as out, forked_converter():
        for path in paths:
            if str(path) not in done:
                row = {"file": str(path), **went(path.read_text(encoding="utf-8"), path.name, options.evaluate)}
                done[str(path)] = row
                print(json.dumps(row), file=out, flush=True)
    rows = [done[str(path)] for path in paths]
    for form in ("text", "pb", "mlir", "mlirbc"):
        fared = collections.Counter(general(row[form]) for row in rows if form in row)
        for outcome, count in fared.most_common():
            print(f"{form:7} {count:5}  {outcome}")
    return int(
        any(
            word in row.get(form, "")
            for row in rows
            for form in ("pb", "mlir", "mlirbc")
            for word in ("differs", "not read")
        )
    )


if __name__ == "__main__":
    sys.exit(main())
