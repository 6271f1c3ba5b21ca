"""What devices exchange, over the interface of `cupyx.distributed`: each device has a process of its own, which runs the same driver.

The text of this function is also what an emitted driver contains. `COMMUNICATOR` is empty, or holds what `init_process_group` gave.
"""

from __future__ import annotations

from typing import Any

from hlo_opt.runtime.device_arrays import flat, logical, narrowed, widened

COMMUNICATOR: list[Any] = []


def exchange_call(xp: Any, buffers: Any, shapes: Any, kind: str, combine: str, along: int, devices: int) -> Any:
    """`all-reduce`, `reduce-scatter` or `all-gather` of each buffer among all devices, the last two along a dimension; `combine` is sum, prod, max or min."""
    made = []
    for buffer, source, result in zip(buffers, shapes[: len(buffers)], shapes[len(buffers) :], strict=True):
        values = logical(widened(xp, buffer, source[0]), source[2], source[3])
        if devices > 1 and not COMMUNICATOR:
            raise RuntimeError(
                f"run on {devices} devices: run(*arrays, communicator=init_process_group({devices}, rank))"
            )
        if kind == "reduce-scatter":
            values = xp.stack(xp.split(values, devices, along))
        sent = xp.ascontiguousarray(values)
        if devices == 1:
            taken = sent.copy()
        elif kind == "all-reduce":
            taken = xp.empty_like(sent)
            COMMUNICATOR[0].all_reduce(sent, taken, combine)
        elif kind == "reduce-scatter":
            taken = xp.empty_like(sent[0])
            COMMUNICATOR[0].reduce_scatter(sent, taken, taken.size, combine)
        else:
            taken = xp.empty((devices, *sent.shape), sent.dtype)
            COMMUNICATOR[0].all_gather(sent, taken, sent.size)
        if kind == "all-gather":
            taken = xp.concatenate(list(taken.reshape((devices, *sent.shape))), along)
        taken = taken.reshape(result[2])
        made.append(narrowed(xp, flat(xp, taken, result[3]), result[0], result[1]))
    return made
