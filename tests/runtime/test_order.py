"""Kernels that read an array go before the one that updates it in place: no copy where an order without one exists."""

import random
import subprocess
import sys
import types
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import pytest

import hlo_opt
from hlo_opt.ir import Instruction, Module, edit
from hlo_opt.runtime.host.library import has_compiler
from hlo_opt.runtime.schedule import EmittedKernels, Schedule, build_schedule, donation
from hlo_opt.runtime.schedule.lifetimes import buffer_bytes
from hlo_opt.runtime.schedule.ops import CallOp, Copy, LaunchOp, LoopOp

V = "f32[64,128]"
LOOP = """body {
  s = (s32[], V, V) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  c = V get-tuple-element(s), index=1
  k = s32[] constant(1)
  j = s32[] add(i, k)
  z = s32[] constant(0)
  x = f32[1,128] constant({...})
  u = V dynamic-update-slice(c, x, i, z)
  r = V reverse(c), dimensions={0}
  ROOT t = (s32[], V, V) tuple(j, u, r)
}
condition {
  s = (s32[], V, V) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(5)
  ROOT l = pred[] compare(i, n), direction=LT
}
"""
UPDATE = "u = V dynamic-update-slice(p, x, i, i)"


def text_of(body: str, aliases: Mapping[int, int], before: str = "") -> str:
    """A module with arrays p and q, a row x and a position i."""
    pairs = ", ".join(
        f"{{{out if 'ROOT t = (' in body else ''}}}: ({k}, {{}}, may-alias)" for k, out in aliases.items()
    )
    given = ["p = V parameter(0)", "q = V parameter(1)", "x = f32[1,128] parameter(2)", "i = s32[] parameter(3)"]
    lines = "\n".join(f"  {line.strip()}" for line in (*given, *body.strip().splitlines()))
    text = f"HloModule m, input_output_alias={{ {pairs} }}\n{before}ENTRY e {{\n{lines}\n}}\n"
    return text.replace("{...}", f"{{{{{', '.join(map(str, range(128)))}}}}}").replace("V", V)


def inputs() -> list[np.ndarray]:
    generator = np.random.default_rng(0)
    arrays = [generator.integers(-9, 9, shape).astype(np.float32) for shape in ((64, 128), (64, 128), (1, 128))]
    return [*arrays, np.array(7, np.int32)]


def copies(schedule: Schedule) -> int:
    """Arrays of the size of p that the entry copies, and those that its loops copy."""
    entry = schedule.entry
    size = buffer_bytes(entry.shapes[entry.inputs[0]])
    copied = [b for op in entry.ops if isinstance(op, Copy) for b in op.outputs]
    copied += [op.inputs[k] for op in entry.ops if isinstance(op, LoopOp) for k in op.copied]
    return sum(buffer_bytes(entry.shapes[b]) == size for b in copied)


def launched(schedule: Schedule) -> list[str]:
    return [op.instruction.name for op in schedule.entry.ops if isinstance(op, LaunchOp | CallOp | LoopOp)]


CASES: dict[str, tuple[str, dict[int, int], int, str]] = {
    "a reader behind the update": (
        f"{UPDATE}\nr = V reverse(p), dimensions={{0}}\nROOT t = (V, V) tuple(u, r)",
        {0: 0},
        0,
        "",
    ),
    "and what the reader needs": (
        f"{UPDATE}\nn = V negate(q)\nr = V reverse(p), dimensions={{0}}\na = V add(r, n)\nROOT t = (V, V) tuple(u, a)",
        {0: 0},
        0,
        "",
    ),
    "a reader that needs the update": (f"{UPDATE}\na = V add(p, u)\nROOT t = (V, V) tuple(u, a)", {0: 0}, 1, ""),
    "an array of its own": (
        f"n = V negate(p)\n{UPDATE.replace('p,', 'n,')}\nr = V reverse(n), dimensions={{0}}\n"
        "ROOT t = (V, V) tuple(u, r)",
        {},
        0,
        "",
    ),
    "two updates of one array": (
        f"{UPDATE}\nw = V dynamic-update-slice(p, x, i, i)\nn = V negate(w)\nROOT t = (V, V) tuple(u, n)",
        {0: 0},
        1,
        "",
    ),
    "updates one after another": (
        f"{UPDATE}\nr = V reverse(p), dimensions={{0}}\nw = V dynamic-update-slice(u, x, i, i)\n"
        "m = V reverse(u), dimensions={1}\nROOT t = (V, V, V) tuple(w, r, m)",
        {0: 0},
        0,
        "",
    ),
    "the state of a loop": (
        "c = s32[] constant(0)\ns = (s32[], V, V) tuple(c, p, q)\n"
        "l = (s32[], V, V) while(s), condition=condition, body=body\nv = V get-tuple-element(l), index=1\n"
        "r = V reverse(p), dimensions={0}\nROOT t = (V, V) tuple(v, r)",
        {0: 0},
        0,
        LOOP,
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_readers_go_before_the_update(case: str, fake: types.ModuleType, tmp_path: Path) -> None:
    body, aliases, copied, before = CASES[case]
    text = text_of(body, aliases, before)
    module = hlo_opt.parse(text)
    schedule = build_schedule(module)
    assert copies(schedule) == copied
    assert [k for k, _ in schedule.entry.donated] == list(aliases) * (copied == 0 or "two" in case)
    want = hlo_opt.evaluate(module, inputs())
    same(hlo_opt.compile(module, "cupy")(*inputs(), donate=True), want)
    same(run_driver(module, tmp_path), want)
    if not has_compiler():
        pytest.skip("no C++ compiler")
    for executable in (hlo_opt.compile(module), hlo_opt.compile(module, form="plain")):
        kept = inputs()
        same(executable(*kept), want)
        same(kept, inputs())
        same(executable(*inputs(), donate=True), want)


def run_driver(module: Module, folder: Path) -> list[np.ndarray]:
    """What the emitted driver gives."""
    hlo_opt.emit(module, folder / "d")
    p, q, x, i = inputs()
    np.savez(folder / "in.npz", in0=p, in1=q, in2=x, in3=i)
    runner = Path(__file__).parent / "run_driver.py"
    subprocess.run([sys.executable, runner, folder / "d", folder / "in.npz", folder / "out.npz"], check=True)
    with np.load(folder / "out.npz") as results:
        return [results[f"out{n}"] for n in range(len(results.files))]


def same(got: list[np.ndarray], want: list[np.ndarray]) -> None:
    for one, other in zip(got, want, strict=True):
        np.testing.assert_array_equal(one, other)


def test_the_body_of_a_loop_reads_its_state_before_it_is_updated() -> None:
    module = hlo_opt.parse(text_of(CASES["the state of a loop"][0], {0: 0}, LOOP))
    (loop,) = (op for op in build_schedule(module).entry.ops if isinstance(op, LoopOp))
    body = build_schedule(module).routines
    assert loop.updated == (1,) and not any(isinstance(op, Copy) for r in body.values() for op in r.ops)


def test_what_stands_right_stays() -> None:
    """Only what is in the way moves."""
    body = (
        f"a = V negate(q)\nb = V abs(q)\n{UPDATE}\nr = V reverse(p), dimensions={{0}}\nd = V sine(q)\n"
        "ROOT t = (V, V, V, V, V) tuple(u, r, a, b, d)"
    )
    assert launched(build_schedule(hlo_opt.parse(text_of(body, {0: 0})))) == ["a", "b", "r", "u", "d"]
    assert launched(build_schedule(hlo_opt.parse(text_of(body, {})))) == ["a", "b", "u", "r", "d"]


def test_control_dependencies_and_effects_keep_their_order() -> None:
    held = f"{UPDATE}\nr = V reverse(p), dimensions={{0}}, control-predecessors={{u}}\nROOT t = (V, V) tuple(u, r)"
    schedule = build_schedule(hlo_opt.parse(text_of(held, {0: 0})))
    assert launched(schedule) == ["u", "r"] and copies(schedule) == 1
    through = (
        f"{UPDATE}\nv = (V) tuple(u)\nw = (V) tuple(q), control-predecessors={{v}}\n"
        "g = V get-tuple-element(w), index=0\n"
        "r = V subtract(p, g)\nROOT t = (V, V) tuple(u, r)"
    )
    assert launched(build_schedule(hlo_opt.parse(text_of(through, {0: 0})))) == ["u", "r"]
    acting = (
        f"{UPDATE}\nk = token[] after-all()\no = token[] outfeed(q, k)\ne = (V, token[]) infeed(k)\n"
        "f = V get-tuple-element(e), index=0\nr = V subtract(p, f)\nROOT t = (V, V) tuple(u, r)"
    )
    for aliases in ({0: 0}, {}):
        order = launched(build_schedule(hlo_opt.parse(text_of(acting, aliases))))
        assert [n for n in order if n != "k"] == (["o", "e", "r", "u"] if aliases else ["u", "o", "e", "r"])


# ---- drawn modules, against every order


def drawn(seed: int) -> Module:
    """Updates and readers of arrays of which some are given away, in a drawn order."""
    draw = random.Random(seed)
    names, lines = ["p", "q"], []
    for number in range(draw.randint(3, 6)):
        one, name = draw.choice(names), f"v{number}"
        if draw.random() < 0.5:
            lines.append(f"{name} = V dynamic-update-slice({one}, x, i, i)")
        elif draw.random() < 0.6:
            lines.append(f"{name} = V reverse({one}), dimensions={{{draw.randrange(2)}}}")
        else:
            lines.append(f"{name} = V add({one}, {draw.choice(names)})")
        names.append(name)
    read = " ".join(lines)
    results = [n for n in names[2:] if f"({n}," not in read and f"({n})" not in read and f" {n})" not in read]
    results += [draw.choice(names[2:])] * (draw.random() < 0.3)
    lines.append(f"ROOT t = ({', '.join(['V'] * len(results))}) tuple({', '.join(results)})")
    aliases = {
        k: n for k, n in enumerate(draw.sample(range(len(results)), min(2, len(results)))) if draw.random() < 0.9
    }
    return hlo_opt.parse(text_of("\n".join(lines), aliases))


def orders(instructions: list[Instruction]) -> Iterator[list[Instruction]]:
    """All orders with operands before users, of instructions that are not parameters."""
    placed = [i for i in instructions if i.parameter_number is not None]
    left = [i for i in instructions if i.parameter_number is None]

    def rest(done: list[Instruction], left: list[Instruction]) -> Iterator[list[Instruction]]:
        if not left:
            yield done
        for i in left:
            if all(o in done for o in i.operands):
                yield from rest([*done, i], [j for j in left if j is not i])

    yield from rest(placed, left)


@pytest.mark.parametrize("seed", range(40))
def test_no_order_copies_less(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    module, emitted = drawn(seed), EmittedKernels()
    ours = copies(build_schedule(module, emitted=emitted))
    monkeypatch.setattr(donation, "rearranged", lambda routine, wanted, acting: routine)
    least = ours
    for order in orders(list(module.entry.instructions)):
        edit.arrange(module.entry, order)
        least = min(least, copies(build_schedule(module, emitted=emitted)))
    assert ours == least


@pytest.mark.parametrize("seed", range(8))
def test_drawn_orders_give_the_same(seed: int, fake: types.ModuleType) -> None:
    if not has_compiler():
        pytest.skip("no C++ compiler")
    module = drawn(100 + seed)
    want = hlo_opt.evaluate(module, inputs())
    if seed % 2:
        module, _ = hlo_opt.fuse(module)
    for executable in (hlo_opt.compile(module), hlo_opt.compile(module, "cupy")):
        same(executable(*inputs()), want)
        same(executable(*inputs(), donate=True), want)


def test_orders_count() -> None:
    """Most drawn modules need another order than the one they have."""
    moved = 0
    for seed in range(40):
        module = drawn(seed)
        names = [i.name for i in module.entry.instructions if i.opcode not in ("parameter", "tuple")]
        moved += launched(build_schedule(module)) != names
    assert moved >= 8
