"""Collectives over the interface of `cupyx.distributed`: one process per device, each running the same driver.

Emitted drivers contain the source of these functions. `COMMUNICATOR` is empty, or holds the result of
`init_process_group`.
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

    def all_reduce(self, sent: Array, received: Array, combine: str) -> None: ...

    def reduce_scatter(self, sent: Array, received: Array, count: int, combine: str) -> None: ...

    def all_gather(self, sent: Array, received: Array, count: int) -> None: ...


COMMUNICATOR: list[Communicator] = []


def own_communicator(devices: int) -> Communicator:
    """This process's communicator. Raises RuntimeError where there is none."""
    if not COMMUNICATOR:
        raise RuntimeError(f"run on {devices} devices: run(*arrays, communicator=init_process_group({devices}, rank))")
    return COMMUNICATOR[0]


def own_number(xp: ModuleType, partitions: int, is_partition: bool) -> Array:
    """The `partition-id` or `replica-id` of this process; 0 when it runs alone."""
    rank = COMMUNICATOR[0].rank if COMMUNICATOR else 0
    return xp.asarray([rank % partitions if is_partition else rank // partitions]).astype("uint32")


def delivered(xp: ModuleType, exchanged: Sequence[Array], results: Sequence[Described]) -> list[Array]:
    """The buffers of the results. `exchanged` holds arrays of the stored dtypes."""
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
    """`all-reduce`, `reduce-scatter` or `all-gather` of each buffer among all devices.

    `combine` is sum, prod, max or min; `along` is the dimension of the last two. f16 and bf16 are reduced in float32.
    """
    exchanged = []
    for buffer, source in zip(buffers, shapes, strict=False):
        values = logical(widened(xp, buffer, source[0]), source[2], source[3])
        if kind != "all-gather" and source[0] == "f16":
            values = values.astype("float32")
        if kind == "reduce-scatter":
            values = xp.stack(xp.split(values, devices, along))
        sent = xp.ascontiguousarray(values)
        if devices == 1:
            received = sent.copy()
        elif kind == "all-reduce":
            received = xp.empty_like(sent)
            own_communicator(devices).all_reduce(sent, received, combine)
        elif kind == "reduce-scatter":
            received = xp.empty_like(sent[0])
            own_communicator(devices).reduce_scatter(sent, received, received.size, combine)
        else:
            received = xp.empty((devices, *sent.shape), sent.dtype)
            own_communicator(devices).all_gather(sent, received, sent.size)
        if kind == "all-gather":
            received = xp.concatenate(list(received.reshape((devices, *sent.shape))), along)
        elif kind == "reduce-scatter":
            received = received.reshape(sent.shape[1:])
        exchanged.append(narrowed(xp, received, source[0], source[1]))
    return delivered(xp, exchanged, shapes[len(buffers) :])


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
    """A collective within each of `groups`; for `collective-permute`, these are pairs (source, target).

    A device in no group keeps its own values, or gets zeros where it would only receive. `combine` names the function
    of `xp` that reduces, in group order; it is `whole` where an all-to-all moves whole operands.
    """
    rank = own_communicator(devices).rank
    everyone = []
    for buffer, source in zip(buffers, shapes, strict=False):
        sent = xp.ascontiguousarray(logical(buffer, source[2], source[3])).reshape(-1)
        received = xp.empty(devices * sent.nbytes, "uint8")
        own_communicator(devices).all_gather(sent.view("uint8"), received, sent.nbytes)
        everyone.append(received.view(sent.dtype).reshape((devices, *source[2])))
    group = next((g for g in groups if rank in g), (rank,))
    if kind == "collective-permute":
        group = tuple(source for source, target in groups if target == rank)
    elif kind == "collective-broadcast" and not any(rank in g for g in groups):
        group = ()
    place = group.index(rank) if rank in group else 0
    exchanged: list[Any] = []
    for each, source in zip(everyone, shapes, strict=False):
        if not group:
            received = xp.zeros_like(each[0])
        elif kind in ("collective-broadcast", "collective-permute"):
            received = each[group[0]]
        elif kind == "all-gather":
            received = xp.concatenate([each[member] for member in group], along)
        elif kind == "all-to-all":
            if combine == "whole":
                received = everyone[place][group[len(exchanged)]]
            else:
                received = xp.concatenate([xp.split(each[m], len(group), along)[place] for m in group], along)
        else:
            wide = [widened(xp, xp.ascontiguousarray(each[member]), source[0]) for member in group]
            total = wide[0].astype("float32") if source[0] == "f16" else wide[0]
            for values in wide[1:]:
                total = getattr(xp, combine)(total, values)
            received = narrowed(xp, total, source[0], source[1])
            if kind == "reduce-scatter":
                received = xp.split(received, len(group), along)[place]
        exchanged.append(received)
    return delivered(xp, exchanged, shapes[len(buffers) :])
