"""How the time of fusing grows with the module: python -m scripts.bench.fuse_scaling [SHAPE...] [--preset P] [--most N]
[--limit-s S]

The shapes are worst cases for fusion passes: one long chain, one value with many users, many users that meet again,
deep diamonds, many small chains side by side, and blocks like a network's layers. For each shape and preset, modules
from 1,000 to 100,000 instructions: seconds of `hlo_opt.fuse` (proof and decisions included; of the processor, for other
programs may be busy) and of XLA's parser on the same text, then the exponent of growth (1 is linear) and the growth
divided by that of n log n, both between the smallest module that took a tenth of a second and the largest. A size that
would take longer than S seconds, going by the last one, is left out.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Callable, Iterator

import jaxlib._hlo as hlo

import hlo_opt

SIZES = (1_000, 3_000, 10_000, 30_000, 100_000)
ARRAY = "f32[64,128]{1,0}"
UNARY = ("negate", "exponential", "tanh", "abs")


def module(lines: list[str], root: str, shape: str = ARRAY) -> str:
    """A module of one computation; `lines` define what the root needs."""
    body = "\n".join(f"  {line}" for line in lines)
    reducer = (
        "%sum (x: f32[], y: f32[]) -> f32[] {\n  %x = f32[] parameter(0)\n  %y = f32[] parameter(1)\n  ROOT %s = f32[] "
        "add(%x, %y)\n}\n"
    )
    return f"HloModule generated\n\n{reducer}\nENTRY %main (p: f32[64,128]) -> {shape} {{\n{body}\n  {root}\n}}\n"


def chain(size: int) -> str:
    """Each instruction reads the one before."""
    lines = [f"%v0 = {ARRAY} parameter(0)"]
    lines += [f"%v{n} = {ARRAY} {UNARY[n % 4]}(%v{n - 1})" for n in range(1, size - 1)]
    return module(lines, f"ROOT %r = {ARRAY} negate(%v{size - 2})")


def fan(size: int) -> str:
    """One value with thousands of users, whose results are all returned."""
    users = size - 3
    lines = [f"%p = {ARRAY} parameter(0)", f"%v = {ARRAY} tanh(%p)"]
    lines += [f"%user{n} = {ARRAY} {UNARY[n % 4]}(%v)" for n in range(users)]
    shapes = ", ".join([ARRAY] * users)
    return module(lines, f"ROOT %r = ({shapes}) tuple({', '.join(f'%user{n}' for n in range(users))})", f"({shapes})")


def siblings(size: int) -> str:
    """One value, row reductions of different functions of it, all returned."""
    count = (size - 4) // 2
    lines = [f"%p = {ARRAY} parameter(0)", f"%v = {ARRAY} tanh(%p)", "%z = f32[] constant(0)"]
    for n in range(count):
        lines.append(f"%user{n} = {ARRAY} {UNARY[n % 4]}(%v)")
        lines.append(f"%total{n} = f32[64]{{0}} reduce(%user{n}, %z), dimensions={{1}}, to_apply=%sum")
    shapes = ", ".join(["f32[64]{0}"] * count)
    return module(lines, f"ROOT %r = ({shapes}) tuple({', '.join(f'%total{n}' for n in range(count))})", f"({shapes})")


def diamonds(size: int) -> str:
    """Each level has two functions of the one before, and their sum."""
    lines = [f"%v0 = {ARRAY} parameter(0)"]
    levels = (size - 2) // 3
    for n in range(1, levels + 1):
        lines.append(f"%a{n} = {ARRAY} exponential(%v{n - 1})")
        lines.append(f"%b{n} = {ARRAY} tanh(%v{n - 1})")
        lines.append(f"%v{n} = {ARRAY} add(%a{n}, %b{n})")
    return module(lines, f"ROOT %r = {ARRAY} negate(%v{levels})")


def meeting(size: int) -> str:
    """One value with many users that are added up one after the other: every sum can reach the value along many
    paths."""
    users = (size - 3) // 2
    lines = [f"%p = {ARRAY} parameter(0)", f"%v = {ARRAY} tanh(%p)", f"%total0 = {ARRAY} negate(%v)"]
    for n in range(1, users):
        lines.append(f"%user{n} = {ARRAY} {UNARY[n % 4]}(%v)")
        lines.append(f"%total{n} = {ARRAY} add(%total{n - 1}, %user{n})")
    return module(lines, f"ROOT %r = {ARRAY} negate(%total{users - 1})")


def layers(size: int) -> str:
    """A softmax, a matrix product and an activation, again and again."""
    lines = [f"%v0 = {ARRAY} parameter(0)", "%z = f32[] constant(0)", "%w = f32[128,128]{1,0} constant({...})"]
    for n in range(1, (size - 4) // 9 + 1):
        lines += [
            f"%e{n} = {ARRAY} exponential(%v{n - 1})",
            f"%total{n} = f32[64]{{0}} reduce(%e{n}, %z), dimensions={{1}}, to_apply=%sum",
            f"%b{n} = {ARRAY} broadcast(%total{n}), dimensions={{0}}",
            f"%q{n} = {ARRAY} divide(%e{n}, %b{n})",
            f"%d{n} = {ARRAY} dot(%q{n}, %w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}",
            f"%t{n} = {ARRAY} tanh(%d{n})",
            f"%m{n} = {ARRAY} multiply(%t{n}, %d{n})",
            f"%a{n} = {ARRAY} add(%m{n}, %v{n - 1})",
            f"%v{n} = {ARRAY} negate(%a{n})",
        ]
    return module(lines, f"ROOT %r = {ARRAY} negate(%v{(size - 4) // 9})")


def beside(size: int) -> str:
    """Chains of eight instructions side by side, of many shapes."""
    lines, roots = [f"%p = {ARRAY} parameter(0)"], []
    for n in range((size - 2) // 8):
        rows = 1 + n % 64
        shape = f"f32[{rows},128]{{1,0}}"
        lines.append(f"%c{n}.0 = {shape} slice(%p), slice={{[0:{rows}], [0:128]}}")
        lines += [f"%c{n}.{k} = {shape} {UNARY[(n + k) % 4]}(%c{n}.{k - 1})" for k in range(1, 8)]
        roots.append((f"%c{n}.7", shape))
    shapes = ", ".join(shape for _, shape in roots)
    return module(lines, f"ROOT %r = ({shapes}) tuple({', '.join(name for name, _ in roots)})", f"({shapes})")


SHAPES: dict[str, Callable[[int], str]] = {
    f.__name__: f for f in (chain, fan, siblings, diamonds, meeting, layers, beside)
}


def measured(make: Callable[[int], str], preset: str, most: int, limit: float) -> Iterator[tuple[int, float, float]]:
    """Instructions, seconds of fusing and seconds of XLA's parser, size after size."""
    last: tuple[int, float] | None = None
    for size in SIZES:
        if size > most or (last is not None and last[1] * (size / last[0]) > limit):
            return
        text = make(size)
        start = time.process_time()
        hlo.hlo_module_from_text(text)
        parser = time.process_time() - start
        parsed = hlo_opt.parse(text)
        start = time.process_time()
        len(hlo_opt.fuse(parsed, preset=preset)[1])  # decisions are found out when they are looked at
        last = (size, time.process_time() - start)
        yield size, last[1], parser


def main() -> int:
    """The command."""
    assert __doc__ is not None
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shapes", nargs="*", metavar="SHAPE", help=f"of {', '.join(SHAPES)}; all when none is named")
    parser.add_argument("--preset", default="default")
    parser.add_argument("--most", type=int, default=SIZES[-1], metavar="N")
    parser.add_argument("--limit-s", type=float, default=120.0, metavar="S")
    arguments = parser.parse_args()
    for name in arguments.shapes or SHAPES:
        if name not in SHAPES:
            parser.error(f"there is no shape {name!r}: one of {', '.join(SHAPES)}")
    hlo_opt.fuse(hlo_opt.parse(chain(100)), preset=arguments.preset)
    for name in arguments.shapes or SHAPES:
        rows: list[tuple[int, float, float]] = []
        for size, seconds, parsing in measured(SHAPES[name], arguments.preset, arguments.most, arguments.limit_s):
            rows.append((size, seconds, parsing))
            each = 1e6 * seconds / size
            print(f"{name:9} {size:7,} {seconds:8.2f} s  {each:7.1f} us each  {seconds / parsing:7.1f} x XLA's parser")
        base = next((r for r in rows if r[1] >= 0.1), rows[0])
        last = rows[-1]
        if last[0] > base[0]:
            growth = math.log(last[1] / base[1]) / math.log(last[0] / base[0])
            allowed = last[0] * math.log(last[0]) / (base[0] * math.log(base[0]))
            print(f"{name:9} grows as n^{growth:.2f}, {last[1] / base[1] / allowed:.2f} times n log n", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
