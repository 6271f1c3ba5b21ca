"""Rules for collectives: among one device, and of values that are the same on all."""

from __future__ import annotations

import math

import numpy as np

from hlo_opt.evaluate import Interpreter
from hlo_opt.evaluate.program import face
from hlo_opt.ir import Attribute, Instruction, Raw, array, edit
from hlo_opt.ir.values import Array
from hlo_opt.ops import OpKind, find
from hlo_opt.ops.collective.module_devices import MOST, counted_by, counts, groups, named
from hlo_opt.ops.reduction.reducers import monoid
from hlo_opt.ops.sets import IDEMPOTENT
from hlo_opt.passes.simplify.reading import is_a, is_integer, known, uniform
from hlo_opt.passes.simplify.rule import rule
from hlo_opt.passes.simplify.site import Site


def _devices(i: Instruction) -> int:
    """How many devices run the module, as its header says."""
    module = i.computation.module
    return 1 if module is None else math.prod(counts(module))


def _is_alone(i: Instruction) -> bool:
    """Whether each device is in a group of its own: the module has one device, or all groups have one."""
    groups = i.attributes.get("replica_groups")
    text = "" if groups is None else groups.text.replace(" ", "")
    single = text.startswith("{{") and "," not in text.replace("},{", "")
    if text in ("", "{}"):
        module = i.computation.module
        return module is None or named(module) == (1, 1)  # a header may leave the count to the groups of others
    return single and text.count("{") - 1 >= _devices(i)


@rule(
    "collective-of-one",
    "all-reduce all-gather reduce-scatter collective-broadcast",
    "all-reduce, all-gather, reduce-scatter among one device = the operand",
    "nobody else brings anything",
)
def collective_of_one(i: Instruction, site: Site) -> Instruction | None:
    if len(i.operands) != 1 or not _is_alone(i) or not i.operands[0].shape.same_values(i.shape):
        return None
    return i.operands[0]


@rule(
    "sharding-of-one",
    "custom-call",
    "mark of how an array is divided among devices, where there is one = the operand",
    "the mark computes nothing, and XLA removes it where nothing is divided (ShardingRemover)",
)
def sharding_of_one(i: Instruction, site: Site) -> Instruction | None:
    return i.operands[0] if marks_sharding(i) and i.operands[0].shape.same_values(i.shape) else None


def marks_sharding(i: Instruction) -> bool:
    """Whether it only says how its operand is divided among devices, of which there is one."""
    is_mark = i.opcode == "custom-call" and i.word("custom_call_target") == "Sharding"
    return is_mark and len(i.operands) == 1 and _devices(i) == 1


def _named(i: Instruction) -> list[list[int]]:
    """The groups of a collective whose devices are numbered in one way, also groups of devices that do not exist; empty
    for others."""
    written = i.attributes.get("replica_groups")
    if written is None or ("channel_id" in i.attributes and not _is_global(i)):
        return []
    try:
        return groups(written.text)
    except ValueError:
        return []


def _together(i: Instruction) -> int | None:
    """The number of devices in each group of a collective, if all groups have the same size. Only existing devices
    count; a header that says one device leaves their number open, and then all that are named exist."""
    module = i.computation.module
    replicas, partitions = (1, 1) if module is None else counts(module)
    count = replicas if counted_by(i) == "replicas" else replicas * partitions
    existing = [group if _devices(i) == 1 else [d for d in group if d < count] for group in _named(i)]
    sizes = {len(group) for group in existing if group}
    return sizes.pop() if len(sizes) == 1 and max(sizes) <= MOST else None


def _is_global(i: Instruction) -> bool:
    return str(i.value("use_global_device_ids", False)) in ("True", "true")


@rule(
    "all-reduce-of-same",
    "all-reduce reduce-scatter",
    "all-reduce or reduce-scatter of one known number everywhere = what comes out, everywhere",
    "each device brings the same; it is computed as the interpreter folds it, and HLO leaves the order open",
)
def all_reduce_of_same(i: Instruction, site: Site) -> Instruction | None:
    number, count, opcode = uniform(i.operands[0]), _together(i), monoid(i.called_by("to_apply"))
    if number is None or count is None or opcode is None or not i.shape.is_array or not i.shape.element_count:
        return None
    total = number
    reducer = i.called_by("to_apply")
    for _ in range(count - 1):
        total = np.asarray(Interpreter().call(reducer, [total, number]))
    return site.full(i.shape, total)


@rule(
    "all-gather-of-same",
    "all-gather",
    "all-gather of one known number everywhere = more of it",
    "each device brings the same",
)
def all_gather_of_same(i: Instruction, site: Site) -> Instruction | None:
    number = uniform(i.operands[0])
    if number is None or len(i.operands) != 1 or not i.shape.is_array or not i.shape.element_count:
        return None
    return site.full(i.shape, number)


@rule(
    "all-reduce-of-replicated",
    "all-reduce",
    "all-reduce by max, min, and, or of a parameter that is the same on all replicas = the parameter",
    "how often a value comes in does not count",
)
def all_reduce_of_replicated(i: Instruction, site: Site) -> Instruction | None:
    value = i.operands[0]
    if len(i.operands) != 1 or not _is_replicated(value):
        return None
    return value if monoid(i.called_by("to_apply")) in IDEMPOTENT else None


def _is_replicated(value: Instruction) -> bool:
    """Whether it is a parameter of the program that the text marks as equal on all replicas, and there are no
    partitions, on which it may differ."""
    module, written = value.computation.module, value.attributes.get("parameter_replication")
    if module is None or value.computation is not module.entry or value.parameter_number is None:
        return False
    partitions = module.attributes.get("num_partitions")
    if partitions is not None and partitions.text != "1":
        return False
    return written is not None and written.text.replace(" ", "") == "{true}"


@rule(
    "sum-of-replicated",
    "all-reduce",
    "all-reduce by add of a parameter that is the same on 2^k replicas = a product",
    "doubling rounds nothing, and HLO leaves open in which order devices are added up",
)
def sum_of_replicated(i: Instruction, site: Site) -> Instruction | None:
    value, count = i.operands[0], _together(i)
    if len(i.operands) != 1 or not _is_replicated(value) or monoid(i.called_by("to_apply")) != "add" or count is None:
        return None
    if count & (count - 1) or not (i.shape.type.is_integer or i.shape.type.is_float) or count > 64:
        return None
    return site.elementwise("multiply", value, site.full(value.shape, count))


@rule(
    "all-reduce-of-all-reduce",
    "all-reduce",
    "all-reduce of an all-reduce that nobody else reads, by the same operation, where no device comes in twice = one "
    "among the devices of both",
    "each device gets the same values; HLO leaves the order of devices open",
)
def all_reduce_of_all_reduce(i: Instruction, site: Site) -> Instruction | None:
    inner, opcode = i.operands[0], monoid(i.called_by("to_apply"))
    if not is_a(inner, "all-reduce") or len(i.operands) != 1 or len(inner.operands) != 1 or len(inner.users) > 1:
        return None
    if opcode is None or opcode != monoid(inner.called_by("to_apply")):
        return None
    if _numbering(i) != _numbering(inner) or inner.control_predecessors:
        return None
    if any(inner in other.control_predecessors for other in i.computation.instructions):
        return None  # it would stay, and devices would meet twice
    first = {device: group for group in _named(inner) for device in group}
    made: dict[tuple[int, ...], None] = {}
    for group in _named(i):
        if any(device not in first for device in group):
            return None
        together = sorted(device for member in group for device in first[member])
        if len(set(together)) < len(together):
            return None
        made[tuple(together)] = None
    devices = [device for group in made for device in group]
    if not made or len(set(devices)) < len(devices) or len({len(group) for group in made}) > 1:
        return None
    if set(devices) != {device for group in _named(i) for device in group}:
        return None
    groups = "{" + ",".join("{" + ",".join(map(str, group)) + "}" for group in made) + "}"
    site.met.append(inner)
    return site.again(i, inner.operands, replica_groups=Raw(groups))


def _numbering(i: Instruction) -> tuple[bool, bool]:
    """How a collective numbers its devices."""
    return "channel_id" in i.attributes, _is_global(i)


@rule(
    "own-part-of-all-gather",
    "dynamic-slice",
    "dynamic-slice of an all-gather where each device takes what it brought = its operand",
    "it gets its own part back",
)
def own_part_of_all_gather(i: Instruction, site: Site) -> Instruction | None:
    inner, *starts = i.operands
    gather = inner.operands[0] if is_a(inner, "reshape") else inner
    if not is_a(gather, "all-gather") or len(gather.operands) != 1 or not gather.shape.is_array:
        return None
    (along,), part = gather.ints("dimensions"), gather.operands[0]
    if gather is not inner and (along or inner.shape.dimensions[0] != gather.shape.dimensions[0]):
        return None
    wanted = (*inner.shape.dimensions[:along], part.shape.dimensions[along], *inner.shape.dimensions[along + 1 :])
    if i.shape.dimensions != wanted or not _is_own_place(gather, starts, along, part.shape.dimensions[along], wanted):
        return None
    site.met.append(gather)
    return site.reshape(part, i.shape.dimensions)


@rule(
    "own-part-of-all-reduce",
    "dynamic-slice",
    "dynamic-slice of an all-reduce that nobody else reads, where devices take one part each = reduce-scatter",
    "each device gets the same sums; HLO leaves the order of devices open",
)
def own_part_of_all_reduce(i: Instruction, site: Site) -> Instruction | None:
    inner, *starts = i.operands
    if not is_a(inner, "all-reduce") or len(inner.operands) != 1 or len(inner.users) > 1 or not inner.shape.is_array:
        return None
    if inner.control_predecessors or any(inner in o.control_predecessors for o in i.computation.instructions):
        return None  # it would stay, and devices would meet twice
    differing = [
        d for d, (n, whole) in enumerate(zip(i.shape.dimensions, inner.shape.dimensions, strict=True)) if n != whole
    ]
    sizes = {len(group) for group in _named(inner)}
    if len(differing) != 1 or len(sizes) != 1 or monoid(inner.called_by("to_apply")) is None:
        return None
    along = differing[0]
    if i.shape.dimensions[along] * sizes.pop() != inner.shape.dimensions[along]:
        return None
    if not _is_own_place(inner, starts, along, i.shape.dimensions[along], i.shape.dimensions):
        return None
    scatter = edit.create(
        i.computation,
        "reduce-scatter",
        "reduce-scatter",
        array(i.shape.type, *i.shape.dimensions),
        inner.operands,
        {**inner.attributes, "dimensions": Attribute.of((along,))},
    )
    site.created.append(scatter)
    site.met.append(inner)
    return scatter


def _is_own_place(
    collective: Instruction, starts: list[Instruction], along: int, size: int, sizes: tuple[int, ...]
) -> bool:
    """Whether each device of a collective takes the part of the result that has its own number in its group."""
    if len(starts) != len(sizes) or not _named(collective):
        return False
    if any(not is_integer(s, 0) for d, s in enumerate(starts) if d != along):
        return False
    for group in _named(collective):
        for number, device in enumerate(group):
            start = _on_device(starts[along], device, _DEEPEST)
            if start is None or int(start.reshape(-1)[0]) != number * size:
                return False
    return True


_DEEPEST = 8
"""The most operations between a device's number and a place."""


def _on_device(value: Instruction, device: int, deepest: int) -> Array | None:
    """The value of a scalar, or of a few numbers, on a device, if it depends on nothing else; None for modules with
    both replicas and partitions, where a number of a device is both."""
    elements = known(value)
    if elements is not None:
        return elements if elements.size <= _MOST_NUMBERS else None
    if is_a(value, "partition-id", "replica-id"):
        return np.asarray(device, value.shape.type.dtype) if _numbers_devices(value) else None
    spec = find(value.opcode)
    folded = spec is not None and spec.kind in (OpKind.ELEMENTWISE, OpKind.MOVEMENT) and not spec.side_effects
    plain = (folded or is_a(value, "dynamic-slice")) and not list(value.called()) and bool(value.operands)
    if not plain or not deepest or not value.shape.is_array or value.shape.element_count > _MOST_NUMBERS:
        return None
    operands = [_on_device(o, device, deepest - 1) for o in value.operands]
    numbers = [o for o in operands if o is not None]
    if len(numbers) < len(operands):
        return None
    return np.asarray(face(value)(Interpreter(), value, [*numbers]))


_MOST_NUMBERS = 4096
"""The most elements of a table of places."""


def _numbers_devices(i: Instruction) -> bool:
    """Whether a replica's or a partition's number is a device's: there are none of the other kind."""
    module = i.computation.module
    replicas, partitions = (1, 1) if module is None else named(module)
    return (partitions if is_a(i, "replica-id") else replicas) == 1
