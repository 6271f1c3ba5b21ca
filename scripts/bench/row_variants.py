"""Other forms of row kernels, side by side on a GPU: python -m scripts.bench.row_variants [--seconds N]
[--out FILE.json] [NAME...]

A form is what the plans choose with other values of their constants. Each is fused and compiled in a process without a
GPU (`made_apart`), run once, and compared with the first form of its program; then it is timed as
`scripts.bench.kernel_times` does it, forms in turn.

us      microseconds of the kernels by events, the cache emptied before each run: the median
price   what the plans of these kernels said they would take
share   of what a plain copy reaches, in percent: the program's least bytes by time by the bandwidth of a copy
kernel  grid, threads of a block and blocks of a cluster of the first kernel
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

import hlo_opt
from hlo_opt.analysis.targets import target as find
from hlo_opt.fusion.summary import module_summary
from hlo_opt.ir import Module
from hlo_opt.plans import Plan
from hlo_opt.runtime.measure.bench import Clock, clock_of
from hlo_opt.runtime.schedule import build_schedule
from scripts.bench.gpu import agree
from scripts.bench.kernel_programs import Program, least_bytes, programs
from scripts.bench.kernel_times import drawn, taken, target_of_device
from scripts.bench.made_apart import TEXT, fill_cache, started

ROUNDS = 7
_ROWS, _COLUMNS_TOO = "hlo_opt.plans.row_reduction", "hlo_opt.plans.row_and_column_reduction"

Form = Mapping[tuple[str, str], Any]
"""Other values: of (module, attribute or class.attribute)."""


def _never(*arguments: object) -> bool:
    return False


def _of_two(plan: Plan) -> str:
    return f"{plan.launch.block}, 2"


def _in_clusters_of(blocks: int) -> Form:
    """A cluster of so many blocks for each row."""

    def spread(part: Any, cores: int) -> Any:
        return replace(part, parts=blocks, in_cluster=True)

    return {(_ROWS, "Rows.spread"): spread}


_PLANNED: Mapping[str, Form] = {"as planned": {}}
_ALONE: Mapping[str, Form] = {"a block for each row": {(_ROWS, "CLUSTERS"): ()}}
_READ_AGAIN: Mapping[str, Form] = {
    "what rows share is read again": {(_COLUMNS_TOO, "_shared"): lambda *arguments: ()},
}
FORMS: Mapping[str, Mapping[str, Form]] = {
    "layer norm gradient bf16 8192x4096": {
        **_PLANNED,
        **_READ_AGAIN,
        "a block for each team": {(_COLUMNS_TOO, "_may_share"): _never, ("hlo_opt.codegen.emit", "_bounds"): _of_two},
    },
    "softmax f32 256x131072": _PLANNED,
    "softmax bf16 256x131072": _PLANNED,
    "softmax bf16 1024x50257": {**_PLANNED, **_ALONE},
    "softmax f32 1024x32768": {**_PLANNED, **_ALONE},
    "softmax bf16 1024x32768": {**_PLANNED, "clusters of 2": _in_clusters_of(2)},
    "layer norm gradient f32 8192x4096": {**_PLANNED, **_READ_AGAIN},
    "layer norm bf16 8192x4096": {**_PLANNED, "32 columns of a thread": {(_ROWS, "ROW_PER_THREAD"): 32}},
    "argmax bf16 256x131072": {**_PLANNED, "clusters of 4": _in_clusters_of(4)},
}
HEADER = f"{'program':36s} {'form':32s}   n        us     price  share  kernel"


def _always(value: object, owner: object) -> object:
    return value


@contextmanager
def formed(form: Form) -> Iterator[None]:
    """Plans choose with the values of a form."""
    with ExitStack() as stack:
        for (module, name), value in form.items():
            *owner, attribute = name.split(".")
            where = import_module(module)
            for part in owner:
                where = getattr(where, part)
            made = property(partial(_always, value)) if owner and not callable(value) else value
            stack.enter_context(patch.object(where, attribute, made))
        yield


def of_form(item: tuple[str, str], target: str) -> tuple[Module, dict[str, Any]]:
    """Fuse a program in a form, and compile its kernels: the job of a process without a GPU."""
    name, form = item
    program = _program(name)
    with formed(FORMS[name][form]):
        module = program.made()
        fused, _ = hlo_opt.fuse(module, target=target)
        row: dict[str, Any] = {"price_us": module_summary(fused, find(target)).est_us}
        row["least"] = least_bytes(program, module)
        row["kernels"] = [[k.launch.grid, k.launch.block, k.launch.cluster] for k in _kernels(fused, target)]
        fill_cache(fused, target)
    return fused, row | {"parameters": [p.shape.dimensions for p in fused.entry.parameters]}


def _kernels(fused: Module, target: str) -> Any:
    return build_schedule(fused, target).kernels


def _program(name: str) -> Program:
    return next(program for program in programs() if program.name == name)


def timed(name: str, rows: dict[str, dict[str, Any]], clock: Clock, target: str, rounds: int) -> None:
    """Run and time the forms of a program; what is found goes into their rows."""
    arrays = drawn(_program(name).made.arguments)
    runs: dict[str, tuple[Any, int]] = {}
    first: Any = None
    for form, row in rows.items():
        if "fault" in row:
            continue
        try:
            with formed(FORMS[name][form]):
                ours = hlo_opt.compile(hlo_opt.parse(row.pop(TEXT)), "cupy", target=target)
                own = taken(arrays, row.pop("parameters"))
                results = ours(*own)
                run = ours.resident(own)
                run()
            launches = int(ours.report()["launches"])
            kind = "bfloat16" if any(str(a.dtype) == "bfloat16" for a in results) else "float32"
            first = results if first is None else first
            row |= {"launches": launches, "agrees": agree(results, first, kind), "cold": []}
            runs[form] = run, launches
        except Exception as error:
            row["fault"] = f"{type(error).__name__}: {error}"[:2000]
    for _ in range(rounds):
        for form, (run, launches) in runs.items():
            clock.empty_caches()
            rows[form]["cold"].append(clock.timed(run, launches))
    for form in runs:
        rows[form]["us"] = float(np.median(rows[form]["cold"]))


def line(name: str, form: str, row: dict[str, Any], bandwidth: float) -> str:
    """The row in words."""
    if "us" not in row:
        return f"{name:36s} {form:32s} {row.get('fault', 'not timed').splitlines()[0][:120]}"
    share = row["least"] / (row["us"] * 1e-6) / bandwidth
    return (
        f"{name:36s} {form:32s} {row['launches']:3d} {row['us']:9.1f} {row['price_us']:9.1f} {100 * share:6.1f}  "
        f"{'x'.join(map(str, row['kernels'][0]))}{'' if row['agrees'] else '  differs'}"
    )


def main() -> int:
    assert __doc__ is not None
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="part of a program's name; default: all")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--seconds", type=float, default=60.0, help="time no program after that")
    parser.add_argument("--out", type=Path, metavar="FILE.json")
    given = parser.parse_args()
    start = time.monotonic()
    clock = clock_of("cupy")
    target = target_of_device(clock.device)
    bandwidth = clock.copy_bandwidth()
    chosen = [name for name in FORMS if not given.names or any(part in name for part in given.names)]
    items = [(name, form) for name in chosen for form in FORMS[name]]
    waiting = dict(zip(items, started(of_form, items, target), strict=True))
    print(f"{clock.device}: a copy reaches {bandwidth / 1e9:.0f} GB/s; target {target}\n{HEADER}", flush=True)
    found: dict[str, Any] = {}
    for name in chosen:
        rows = {form: waiting[name, form].result() for form in FORMS[name]}
        if time.monotonic() - start < given.seconds:
            timed(name, rows, clock, target, given.rounds)
        found[name] = {form: {k: v for k, v in row.items() if k != TEXT} for form, row in rows.items()}
        print(*(line(name, form, row, bandwidth) for form, row in rows.items()), sep="\n", flush=True)
        if given.out is not None:
            told = {"device": clock.device, "copy_gb_per_s": bandwidth / 1e9, "row_variants": found}
            given.out.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
    return int(any("us" not in row or not row["agrees"] for rows in found.values() for row in rows.values()))


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    os._exit(status)
