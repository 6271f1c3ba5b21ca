"""Recipes of collectives between the devices of a program, each with a drawn grouping; on one device the groups hold
that device alone."""

from __future__ import annotations

import math

import numpy as np

from hlo_opt.ir import Instruction, Raw, Shape
from random_modules.comparable.known import Known
from random_modules.comparable.reducers import reducer
from random_modules.comparable.writer import S32, Writer, arr, family, tup

GLOBAL = ("all-reduce", "all-gather", "reduce-scatter")
"""Those that may count devices rather than replicas or partitions."""

TYPES = ("f32", "s32", "f64", "bf16", "u8")


@family("devices", "partition-id", "replica-id")
def _identity(w: Writer, opcode: str) -> None:
    count = w.replicas if opcode == "replica-id" else w.partitions
    w.keep(w.emit(opcode, arr("u32"), []), Known(0, count - 1, True))


def _partition(w: Writer, count: int) -> list[list[int]]:
    """The numbers up to a count in groups of one size, in any order."""
    size = w.pick([s for s in range(1, count + 1) if count % s == 0])
    order = w.shuffled(range(count)) if w.flag() else tuple(range(count))
    return [list(order[k : k + size]) for k in range(0, count, size)]


def _text(w: Writer, groups: list[list[int]]) -> str:
    """The groups as a list, or as an iota where they are one."""
    flat = [n for group in groups for n in group]
    rows, columns = len(groups), len(groups[0])
    if flat == list(range(len(flat))) and w.flag():
        return f"[{rows},{columns}]<=[{len(flat)}]"
    if flat == np.arange(len(flat)).reshape(columns, rows).T.reshape(-1).tolist() and w.flag():
        return f"[{rows},{columns}]<=[{columns},{rows}]T(1,0)"
    return "{" + ",".join("{" + ",".join(map(str, group)) + "}" for group in groups) + "}"


def _groups(w: Writer, opcode: str) -> tuple[dict[str, object], int]:
    """The attributes that say who meets, and how many of them meet in a group."""
    name = opcode.removesuffix("-start").removesuffix("-done")
    modes = ["replicas"]
    if w.replicas * w.partitions > 1:
        modes += ["devices", "both"] if name in GLOBAL else ["partitions"]
    mode = w.pick(modes)
    count = {"devices": w.replicas * w.partitions, "partitions": w.partitions}.get(mode, w.replicas)
    groups = _partition(w, count)
    named: dict[str, object] = {} if mode == "replicas" else {"channel_id": w.channel()}
    if mode == "devices":
        named["use_global_device_ids"] = True
    named["replica_groups"] = Raw(_text(w, groups))
    return named, len(groups[0]) * (w.partitions if mode == "both" else 1)


@family(
    "devices", "all-reduce", "all-gather", "all-to-all", "collective-permute", "reduce-scatter", "collective-broadcast",
    "all-reduce-start",
    "all-reduce-done", "all-gather-start", "all-gather-done", "collective-permute-start", "collective-permute-done",
)  # fmt: skip
def _collective(w: Writer, opcode: str) -> None:
    if not w.meets:
        return
    if opcode.endswith("-start"):
        opcode = opcode.replace("-start", "-done")  # either brings the other
    name = opcode.removesuffix("-done")
    if name == "collective-permute":
        _permute(w, opcode)
        return
    shape = w.array(TYPES, 1, 2, 1)
    named, size = _groups(w, opcode)
    along = w.number(0, shape.rank - 1)
    source_shape, result = shape, shape
    larger = arr(shape.type, *(s * size if d == along else s for d, s in enumerate(shape.dimensions)))
    if name == "all-gather":
        source_shape, result = arr(shape.type, *shape.dimensions), larger
    elif name == "reduce-scatter":
        source_shape, result = larger, arr(shape.type, *shape.dimensions)
    elif name == "all-to-all":
        source_shape = result = larger
    if math.prod(larger.dimensions) > w.most_elements:
        return
    if name != "all-reduce" and name != "collective-broadcast":
        named["dimensions"] = (along,)
    after = None
    if name in ("all-reduce", "reduce-scatter"):
        combine = reducer(w, shape.type, plain=True)
        named["to_apply"] = combine.computation
        after = combine.after
    sources = [w.take(source_shape)]
    if name == "all-reduce" and opcode == name and not w.number(0, 9):
        sources.append(w.take(source_shape))
    known = w.known[sources[0]]
    for source in sources[1:]:
        known = known.union(w.known[source])
    if name == "collective-broadcast":
        known = known.union(Known(0, 0, True))
    if after is not None:
        known = after(known, size)
    if len(sources) > 1:
        whole = w.emit(opcode, tup(result, result), sources, **named)
        for index in range(2):
            w.element(whole, index, known)
        return
    made = _emitted(w, opcode, source_shape, result, sources, named)
    if w.number(0, 5) == 0 and opcode == name:  # the same once more: one of the two may go
        w.keep(_emitted(w, opcode, source_shape, result, sources, {**named, **w.again(named)}), known)
    w.keep(made, known)


def _emitted(
    w: Writer, opcode: str, given: Shape, result: Shape, sources: list[Instruction], named: dict[str, object]
) -> Instruction:
    """A collective; in its asynchronous form both parts."""
    if not opcode.endswith("-done"):
        return w.emit(opcode, result, sources, **named)
    pair = result if opcode == "all-reduce-done" else tup(given, result)
    start = w.emit(opcode.replace("-done", "-start"), pair, sources, **named)
    return w.emit(opcode, result, [start])


def _permute(w: Writer, opcode: str) -> None:
    """Some send to some; who hears nothing gets zeros."""
    shape = w.array(TYPES, 0, 2, 1)
    across = w.replicas * w.partitions > 1 and w.flag()
    count = w.partitions if across else w.replicas
    targets = w.shuffled(range(count))
    pairs = [(k, targets[k]) for k in range(count) if w.number(0, 4)] or [(0, targets[0])]
    named: dict[str, object] = {"channel_id": w.channel()} if across else {}
    named["source_target_pairs"] = Raw("{" + ",".join(f"{{{a},{b}}}" for a, b in pairs) + "}")
    source = w.take(shape)
    known = w.known[source].union(Known(0, 0, True))
    w.keep(_emitted(w, opcode, shape, shape, [source], named), known)


@family("devices", "ragged-all-to-all")
def _ragged_all_to_all(w: Writer, opcode: str) -> None:
    """A few rows from one place of each operand to the place of its sender in each output."""
    if not w.meets:
        return
    size, moved = w.replicas, w.number(0, 2)
    rows = max(1, size * moved) + w.number(0, 3)
    shape, each = arr("f32", rows, w.number(1, 3)), arr("s32", size)
    source, target = w.take(shape), w.take(shape)
    own = w.emit("convert", S32, [w.emit("replica-id", arr("u32"), [])])
    at = w.emit("multiply", S32, [own, w.constant(S32, moved)])
    starts = w.constant(each, [w.number(0, rows - moved) for _ in range(size)])
    sizes = w.constant(each, [moved] * size)
    places = w.emit("broadcast", each, [at], dimensions=())
    groups = Raw("{{" + ",".join(map(str, range(size))) + "}}")
    w.moved(
        w.emit(opcode, shape, [source, target, starts, sizes, places, sizes], replica_groups=groups), source, target
    )
