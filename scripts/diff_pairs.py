"""Pairs of modules that differ in a known way: does `hlo-opt diff` say so first, and nothing where there is nothing?

python -m scripts.diff_pairs [--size 10000] [--seed 0] [--only WORD] [--most N]

  told again      a module with other names, another order, other lines, ids and styles: no difference
  planted         one change at a drawn place, in a text that is told again, too: the change is named first
  lost fusion     a fused module, and the same with one fusion that is two kernels: these are named first, with the code
                  that refuses them
  regression      a type, a layout, an annotation, a barrier that is another one, as it happens in real programs: named
                  first, with its Python line
  public          regressions as users reported them: a transpose that left its fusion, a segment sum over another
                  layout, a scatter that becomes a compare-and-swap

A line for each pair, with the seconds of the comparison; exit code 1 when one is wrong.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import hlo_opt
from hlo_opt.ir import edit
from hlo_opt.ops.sets import fused
from hlo_opt.passes.run import collector_paused
from hlo_opt.report.diff.comparison import Comparison, diff
from hlo_opt.report.diff.page import title
from scripts.diff_lost import LOST
from scripts.diff_programs import PLANTS, planted, program, retold
from scripts.diff_regressions import REGRESSIONS

DUMPS = Path(__file__).resolve().parent.parent / "testdata" / "dumps"


@dataclass(frozen=True)
class Pair:
    """Two texts, and what must be said of them: None for nothing, else the names of which the first thing that is told
    must be one; `codes` where a refusal must be told with it."""

    name: str
    old: str
    new: str
    names: frozenset[str] | None
    codes: bool = False
    worse: bool = False
    line: str = ""
    """The Python line that must be told with the first difference."""


def verdict(pair: Pair, found: Comparison) -> str:
    """What is wrong with a comparison; empty when nothing is."""
    if pair.names is None:
        return "" if found.same else f"a difference where there is none: {title(found.differences[0])}"
    if found.same:
        return "no difference"
    first = found.differences[0]
    told = {s.instruction.name for c in first.changes[:1] for s in c.sites}
    if not first.changes:
        told = {k.name for g in first.groups[:1] for k in (*g.old, *g.new)}
    details = [d for c in first.changes[:1] for d in c.details]
    told.update(word for d in details for text in (d.what, d.old, d.new) for word in text.split())
    if not told & pair.names:
        return f"named first: {title(first)}; wanted: {', '.join(sorted(pair.names)[:4])}"
    if pair.codes and not any(g.seams for g in first.groups):
        return "no code says why the kernels are apart"
    if pair.line not in first.source:
        return f"told with {first.source or 'no Python line'}; wanted: {pair.line}"
    if pair.worse and first.us <= 0:
        return "it is not told as slower"
    return ""


def told_again(size: int, seed: int) -> Iterator[Pair]:
    """Pairs without a difference."""
    yield _told_again(f"program of {size}", program(size, seed), seed)
    yield _told_again(f"program of {size}, again", program(size, seed + 1), seed + 1)
    names = (
        "transformer_train_step",
        "cartpole_scan_random",
        "sharded_step",
        "lstm",
        "segment_sums",
        "k_means",
        "branch",
    )
    for n, name in enumerate(names):
        yield _told_again(name, (DUMPS / f"{name}.hlo").read_text(), seed + n)
    for name in ("transformer_block", "mlp_train_step"):
        module = hlo_opt.parse((DUMPS / f"{name}.hlo").read_text())
        yield _told_again(f"{name}, fused", str(hlo_opt.fuse(module, preset="xla-2026")[0]), seed)
    for name, form in (
        ("softmax", "classic"),
        ("attention", "frames"),
        ("cartpole_scan", "frames"),
        ("layer_norm", "classic"),
    ):
        yield Pair(
            f"{name}, {form}", (DUMPS / f"{name}.hlo").read_text(), (DUMPS / f"{name}.{form}.hlo").read_text(), None
        )


def _told_again(name: str, text: str, seed: int) -> Pair:
    return Pair(name, text, retold(hlo_opt.parse(text), seed), None)


def changed(size: int, seed: int) -> Iterator[Pair]:
    """One change of each kind, at two places."""
    text = program(size, seed)
    for n, kind in enumerate((*PLANTS, *PLANTS)):
        made = planted(text, kind, seed * 100 + n)
        again, names = str(made.module), made.names
        if n % 2:
            renamed: dict[str, str] = {}
            again = retold(made.module, seed + n, renamed)
            names = frozenset(renamed.get(name, name) for name in made.names) | made.names
        yield Pair(f"{kind}{', told again' if n % 2 else ''}", text, again, names)


def apart(size: int, seed: int) -> Iterator[Pair]:
    """A fusion less: what one kernel did is done by two."""
    for n, name in enumerate(FUSED):
        whole, _ = hlo_opt.fuse(hlo_opt.parse((DUMPS / f"{name}.hlo").read_text()), preset="xla-2026")
        fusions = [
            i
            for i in whole.entry.instructions
            if (body := fused(i)) is not None and len(body.instructions) > len(i.operands) + 2
        ]
        if not fusions:
            continue
        chosen = fusions[(seed + n) % len(fusions)]
        parts = edit.clone_module(whole)
        other = next(i for i in parts.entry.instructions if i.name == chosen.name)
        body = other.called_by("calls")
        inlined = edit.splice(body, parts.entry, list(other.operands))
        names = {chosen.name, *(i.name for i in body.instructions)}
        was_root = other.is_root
        edit.replace_all_uses(other, inlined)
        if was_root:
            edit.set_root(parts.entry, inlined)
        edit.remove(other)
        edit.remove_computation(body)
        edit.sort(parts.entry)
        hlo_opt.verify(parts)
        yield Pair(f"{name} without {chosen.name}", str(whole), str(parts), frozenset(names), codes=True, worse=True)


def regressions(size: int, seed: int) -> Iterator[Pair]:
    """As they happen in real programs."""
    for name, one in {**REGRESSIONS, **LOST}.items():
        yield Pair(name, one.old, one.new, one.names, codes=one.codes, worse=one.worse, line=one.line)


def public(size: int, seed: int) -> Iterator[Pair]:
    """Regressions that users reported (xla #16914 and jax #33338, jax #39959, xla #46225)."""
    for name, (old, new, names, codes) in PUBLIC.items():
        yield Pair(name, old, new, frozenset(names), codes=codes, worse=True)


TURNED = """HloModule attention, is_scheduled=true

fused {
  p = bf16[16,1024,64]{2,1,0} parameter(0)
  c = f32[16,1024,64]{2,1,0} convert(p)
  t = f32[1024,16,64]{2,1,0} transpose(c), dimensions={1,0,2}, metadata={op_name="jit(f)/transpose" source_file="attention.py" source_line=41}
  s = f32[] constant(0.125)
  b = f32[1024,16,64]{2,1,0} broadcast(s), dimensions={}
  ROOT m = f32[1024,16,64]{2,1,0} multiply(t, b), metadata={op_name="jit(f)/mul" source_file="attention.py" source_line=42}
}

ENTRY main {
  q = bf16[16,1024,64]{2,1,0} parameter(0), metadata={op_name="jit(f)/q"}
  ROOT fusion.7 = f32[1024,16,64]{2,1,0} fusion(q), kind=kInput, calls=fused
}
"""

ALONE = """HloModule attention, is_scheduled=true

widened {
  p = bf16[16,1024,64]{2,1,0} parameter(0)
  ROOT c = f32[16,1024,64]{2,1,0} convert(p)
}

scaled {
  p = f32[1024,16,64]{2,1,0} parameter(0)
  s = f32[] constant(0.125)
  b = f32[1024,16,64]{2,1,0} broadcast(s), dimensions={}
  ROOT m = f32[1024,16,64]{2,1,0} multiply(p, b), metadata={op_name="jit(f)/mul" source_file="attention.py" source_line=42}
}

ENTRY main {
  q = bf16[16,1024,64]{2,1,0} parameter(0), metadata={op_name="jit(f)/q"}
  loop_fusion = f32[16,1024,64]{2,1,0} fusion(q), kind=kLoop, calls=widened
  transpose.9 = f32[1024,16,64]{2,1,0} transpose(loop_fusion), dimensions={1,0,2}, metadata={op_name="jit(f)/transpose" source_file="attention.py" source_line=41}
  ROOT loop_fusion.1 = f32[1024,16,64]{2,1,0} fusion(transpose.9), kind=kLoop, calls=scaled
}
"""

SUMS = """HloModule sums, entry_computation_layout={{(f32[4096,256]{order}, s32[4096,1]{{1,0}})->f32[512,256]{order}}}

add {{
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] add(a, b)
}}

ENTRY main {{
  data = f32[4096,256]{order} parameter(0)
  segments = s32[4096,1]{{1,0}} parameter(1)
  zero = f32[] constant(0)
  zeros = f32[512,256]{order} broadcast(zero), dimensions={{}}
  ROOT segment_sum = f32[512,256]{order} scatter(zeros, segments, data), update_window_dims={{1}}, inserted_window_dims={{0}}, scatter_dims_to_operand_dims={{0}}, index_vector_dim=1, to_apply=add, metadata={{op_name="jit(f)/segment_sum" source_file="graph.py" source_line=12}}
}}
"""

SCATTER = """HloModule counts

fold {{
  a = f32[] parameter(0)
  b = f32[] parameter(1)
{fold}
}}

ENTRY main {{
  table = f32[1024,64]{{1,0}} parameter(0)
  rows = s32[8192,1]{{1,0}} parameter(1)
  updates = f32[8192,64]{{1,0}} parameter(2)
  ROOT scattered = f32[1024,64]{{1,0}} scatter(table, rows, updates), update_window_dims={{1}}, inserted_window_dims={{0}}, scatter_dims_to_operand_dims={{0}}, index_vector_dim=1, to_apply=fold, metadata={{op_name="jit(f)/scatter-add" source_file="embed.py" source_line=88}}
}}
"""

SWAPPED = """  x = f64[] convert(a)
  y = f64[] convert(b)
  s = f64[] add(x, y)
  ROOT r = f32[] convert(s)"""

PUBLIC: dict[str, tuple[str, str, set[str], bool]] = {
    "transpose that left its fusion": (TURNED, ALONE, {"fusion.7", "transpose.9"}, True),
    "segment sum over another layout": (
        SUMS.format(order="{1,0}"),
        SUMS.format(order="{0,1}"),
        {"segment_sum", "data", "zeros"},
        False,
    ),
    "scatter that became a compare-and-swap": (
        SCATTER.format(fold="  ROOT s = f32[] add(a, b)"),
        SCATTER.format(fold=SWAPPED),
        {"scattered"},
        False,
    ),
}

FUSED = (
    "transformer_block",
    "mlp_train_step",
    "adam",
    "attention",
    "layer_norm",
    "transformer_train_step",
    "batch_norm",
    "autoencoder_step",
)
"""Dumps of which XLA's fusions make several kernels."""

KINDS: dict[str, Callable[[int, int], Iterator[Pair]]] = {
    "told again": told_again,
    "planted": changed,
    "lost fusion": apart,
    "regression": regressions,
    "public": public,
}


def pairs(size: int, seed: int, only: str = "") -> Iterator[Pair]:
    """All pairs whose kind or name holds the word."""
    for kind, make in KINDS.items():
        for pair in make(size, seed):
            if only in kind or only in pair.name:
                yield pair


def judged(pair: Pair) -> tuple[str, Comparison, float]:
    """What is wrong, the comparison, and its seconds with reading both texts."""
    started = time.perf_counter()
    with collector_paused():
        found = diff(*[_read(text) for text in (pair.old, pair.new)])
    return verdict(pair, found), found, time.perf_counter() - started


def _read(text: str) -> hlo_opt.ir.Module:
    module = hlo_opt.parse(text)
    hlo_opt.verify(module)
    return module


def main() -> int:
    """The command."""
    assert __doc__ is not None
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", metavar="WORD")
    options = parser.parse_args()
    wrong = total = 0
    for pair in pairs(options.size, options.seed, options.only):
        fault, found, seconds = judged(pair)
        total += 1
        wrong += bool(fault)
        told = fault or (title(found.differences[0])[:110] if found.differences else "no difference")
        print(f"{'WRONG' if fault else 'right'}  {seconds:5.1f} s  {pair.name:45} {told}", flush=True)
    print(f"{total} pairs, {wrong} wrong")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
