"""What devices exchange, over the interface of `cupyx.distributed`: each device has a process of its own, which runs the same driver.

The text of these functions is also what an emitted driver contains. `COMMUNICATOR` is empty, or holds what `init_process_group` gave.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Any, Protocol

from hlo_opt.ir.values import Array
from hlo_opt.library.arrays import Described, flat, logical, narrowed, widened


class Communicator(Protocol):
    """One device's connection to the others, as NCCL's bindings in CuPy give it to a driver."""

    rank: int

    def all_reduce(self, sent: Array, taken: Array, combine: str) -> None: ...

    def reduce_scatter(self, sent: Array, taken: Array, count: int, combine: str) -> None: ...

    def all_gather(self, sent: Array, taken: Array, count: int) -> None: ...


COMMUNICATOR: list[Communicator] = []


def own_communicator(devices: int) -> Communicator:
    """That of this process."""
    if not COMMUNICATOR:
        raise RuntimeError(f"run on {devices} devices: run(*arrays, communicator=init_process_group({devices}, rank))")
    return COMMUNICATOR[0]


def own_number(xp: ModuleType, partitions: int, is_partition: bool) -> Array:
    """The `partition-id` or `replica-id` of this process; 0 where it runs alone."""
    rank = COMMUNICATOR[0].rank if COMMUNICATOR else 0
    return xp.asarray([rank % partitions if is_partition else rank // partitions]).astype("uint32")


def delivered(xp: ModuleType, exchanged: Sequence[Array], results: Sequence[Described]) -> list[Array]:
    """The buffers of the results: `exchanged` are arrays of the type that buffers hold."""
    return [flat(xp, values.reshape(r[2]), r[3]) for values, r in zip(exchanged, results, strict=True)]


def exchange_call(
    xp: ModuleType,
    buffers: Sequence[Array],
    shapes: Sequence[Described],
    kind: str,
    combine: str,
    along: int,
    devices: int,
) -> list[Array]:
    """`all-reduce`, `reduce-scatter` or `all-gather` of each buffer among all devices, the last two along a dimension; `combine` is sum, prod, max or min.
    Narrow floats are folded in float32."""
    made = []
    for buffer, source in zip(buffers, shapes, strict=False):
        values = logical(widened(xp, buffer, source[0]), source[2], source[3])
        if kind != "all-gather" and source[0] == "f16":
            values = values.astype("float32")
        if kind == "reduce-scatter":
            values = xp.stack(xp.split(values, devices, along))
        sent = xp.ascontiguousarray(values)
        if devices == 1:
            taken = sent.copy()
        elif kind == "all-reduce":
            taken = xp.empty_like(sent)
            own_communicator(devices).all_reduce(sent, taken, combine)
        elif kind == "reduce-scatter":
            taken = xp.empty_like(sent[0])
            own_communicator(devices).reduce_scatter(sent, taken, taken.size, combine)
        else:
            taken = xp.empty((devices, *sent.shape), sent.dtype)
            own_communicator(devices).all_gather(sent, taken, sent.size)
        if kind == "all-gather":
            taken = xp.concatenate(list(taken.reshape((devices, *sent.shape))), along)
        elif kind == "reduce-scatter":
            taken = taken.reshape(sent.shape[1:])
        made.append(narrowed(xp, taken, source[0], source[1]))
    return delivered(xp, made, shapes[len(buffers) :])


def group_exchange_call(
    xp: ModuleType,
    buffers: Sequence[Array],
    shapes: Sequence[Described],
    kind: str,
    combine: str,
    along: int,
    devices: int,
    groups: Sequence[Sequence[int]],
) -> list[Array]:
    """A collective inside each of `groups`; for `collective-permute` these are pairs (source, target). A device that is in none keeps what it has, or gets
    zeros where only others send. `combine` is the function of `xp` that folds, in the order of the group; `whole` where an all-to-all moves whole operands."""
    rank = own_communicator(devices).rank
    everyone = []
    for buffer, source in zip(buffers, shapes, strict=False):
        sent = xp.ascontiguousarray(logical(buffer, source[2], source[3])).reshape(-1)
        taken = xp.empty(devices * sent.nbytes, "uint8")
        own_communicator(devices).all_gather(sent.view("uint8"), taken, sent.nbytes)
        everyone.append(taken.view(sent.dtype).reshape((devices, *source[2])))
    group = next((g for g in groups if rank in g), (rank,))
    if kind == "collective-permute":
        group = tuple(source for source, target in groups if target == rank)
    elif kind == "collective-broadcast" and not any(rank in g for g in groups):
        group = ()
    place = group.index(rank) if rank in group else 0
    made: list[Any] = []
    for each, source in zip(everyone, shapes, strict=False):
        if not group:
            taken = xp.zeros_like(each[0])
        elif kind in ("collective-broadcast", "collective-permute"):
            taken = each[group[0]]
        elif kind == "all-gather":
            taken = xp.concatenate([each[member] for member in group], along)
        elif kind == "all-to-all":
            if combine == "whole":
                taken = everyone[place][group[len(made)]]
            else:
                taken = xp.concatenate([xp.split(each[m], len(group), along)[place] for m in group], along)
        else:
            wide = [widened(xp, xp.ascontiguousarray(each[member]), source[0]) for member in group]
            total = wide[0].astype("float32") if source[0] == "f16" else wide[0]
            for values in wide[1:]:
                total = getattr(xp, combine)(total, values)
            taken = narrowed(xp, total, source[0], source[1])
            if kind == "reduce-scatter":
                taken = xp.split(taken, len(group), along)[place]
        made.append(taken)
    return delivered(xp, made, shapes[len(buffers) :])
