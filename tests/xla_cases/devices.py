"""Cases of the collectives, in a group of one device."""

from __future__ import annotations

from collections.abc import Iterator

from xla_cases.case import Case, makes, operation
from xla_cases.folds import reducer
from xla_cases.values import shaped


@makes("all-reduce", "reduce-scatter", "all-gather", "all-to-all", "collective-broadcast", "collective-permute")
def alone(opcode: str, name: str) -> Iterator[Case]:
    op = "or" if name == "pred" else "add"
    computation = reducer(op, name) if opcode in ("all-reduce", "reduce-scatter") else {}
    attributes = {
        "all-reduce": f"replica_groups={{{{0}}}}, to_apply={op}.{name}",
        "reduce-scatter": f"replica_groups={{{{0}}}}, dimensions={{0}}, to_apply={op}.{name}",
        "all-gather": "replica_groups={{0}}, dimensions={0}",
        "all-to-all": "replica_groups={{0}}, dimensions={0}",
        "collective-broadcast": "replica_groups={{0}}",
        "collective-permute": "source_target_pairs={{0,0}}",
    }[opcode]
    yield operation(opcode, name, [shaped(name, 40)], f"{name}[40]", attributes, computations=computation)


@makes(
    "all-reduce-start", "all-reduce-done", "all-gather-start", "all-gather-done", "collective-permute-start",
    "collective-permute-done"
)  # fmt: skip
def started(opcode: str, name: str) -> Iterator[Case]:
    base = opcode.rsplit("-", 1)[0]
    (plain,) = alone(base, name)
    shape = f"{name}[40]"
    whole = {"all-reduce": shape, "all-gather": f"({shape}, {shape})", "collective-permute": f"({shape}, {shape})"}[
        base
    ]
    attributes = plain.label
    lines = (f"%s = {whole} {base}-start(%p0), {attributes}", f"%r = {shape} {base}-done(%s)")
    yield Case(opcode, name, "", plain.inputs, lines, (shape,), False, plain.computations)
