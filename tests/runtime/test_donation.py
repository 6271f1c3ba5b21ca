"""Results in the memory of donated inputs: which, and that they are the same as without."""

import random
import types
from pathlib import Path

import numpy as np
import pytest

import hlo_opt
from hlo_opt.ir import Module
from hlo_opt.runtime.driver.writer import driver_of
from hlo_opt.runtime.host.library import has_compiler
from hlo_opt.runtime.schedule import build_schedule
from hlo_opt.runtime.schedule.lifetimes import peak_of
from hlo_opt.runtime.schedule.ops import LoopOp
from scripts.xla_cpu import Program

V = "f32[64,128]{1,0}"
FUNCTIONS = """f {
  x = f32[] parameter(0)
  y = f32[] parameter(1)
  ROOT z = f32[] add(x, y)
}
body {
  s = (s32[], V, V) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  v = V get-tuple-element(s), index=1
  w = V get-tuple-element(s), index=2
  one = s32[] constant(1)
  j = s32[] add(i, one)
  r = V reverse(v), dimensions={0}
  x = V add(w, r)
  y = V subtract(v, w)
  ROOT t = (s32[], V, V) tuple(j, y, x)
}
condition {
  s = (s32[], V, V) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(5)
  ROOT l = pred[] compare(i, n), direction=LT
}
"""


def text_of(body: str, aliases: dict[int, int]) -> str:
    """A module with parameters p, q and r of type V, and aliases from inputs to results."""
    is_tuple = "ROOT t = (" in body
    pairs = ", ".join(f"{{{out if is_tuple else ''}}}: ({k}, {{}}, may-alias)" for k, out in aliases.items())
    given = "".join(f"  {name} = V parameter({k})\n" for k, name in enumerate("pqr"))
    lines = "".join(f"  {line.strip()}\n" for line in body.strip().splitlines())
    text = f"HloModule m, input_output_alias={{ {pairs} }}\n{FUNCTIONS}ENTRY e {{\n{given}{lines}}}\n"
    return text.replace("V,", f"{V},").replace("V)", f"{V})").replace("(V", f"({V}").replace(" V ", f" {V} ")


CASES: dict[str, tuple[str, dict[int, int], list[int]]] = {
    "an element": ("ROOT n = V negate(p)", {0: 0}, [0]),
    "one of two operands": ("ROOT n = V subtract(p, q)", {1: 0}, [1]),
    "results that need both": (
        "a = V add(p, q)\nb = V subtract(p, q)\nROOT t = (V, V) tuple(a, b)",
        {0: 1, 1: 0},
        [0],
    ),
    "a neighbour": ("ROOT n = V reverse(p), dimensions={1}", {0: 0}, []),
    "a transpose of it": (
        "s = f32[128,64]{1,0} transpose(p), dimensions={1,0}\nu = V reshape(s)\nROOT n = V add(u, q)",
        {0: 0},
        [0],
    ),
    "read by a later kernel": (
        "a = V negate(p)\nb = V reverse(p), dimensions={0}\nc = V add(a, b)\nd = V subtract(p, a)\n"
        "ROOT t = (V, V, V) tuple(a, c, d)",
        {0: 0},
        [],
    ),
    "read by a kernel that can go before": (
        "a = V negate(p)\nb = V reverse(p), dimensions={0}\nROOT t = (V, V) tuple(a, b)",
        {0: 0},
        [0],
    ),
    "read by an earlier kernel": (
        "b = V reverse(p), dimensions={0}\na = V negate(p)\nROOT t = (V, V) tuple(a, b)",
        {0: 0},
        [0],
    ),
    "after its last reader": (
        "z = f32[] constant(0)\ns = f32[64]{0} reduce(p, z), dimensions={1}, to_apply=f\n"
        "ROOT b = V broadcast(s), dimensions={0}",
        {0: 0},
        [0],
    ),
    "returned as it is": ("a = V negate(p)\nROOT t = (V, V) tuple(a, p)", {0: 0}, []),
    "one result twice": ("a = V negate(p)\nROOT t = (V, V) tuple(a, a)", {0: 0}, []),
    "one array twice": ("ROOT a = V add(p, p)", {0: 0}, []),
    "through views": (
        "b = f32[8192]{0} bitcast(p)\nn = f32[8192]{0} negate(b)\nROOT a = V bitcast(n)",
        {0: 0},
        [0],
    ),
    "state of a loop": (
        "c = s32[] constant(0)\ns = (s32[], V, V) tuple(c, p, q)\n"
        "l = (s32[], V, V) while(s), condition=condition, body=body\n"
        "v = V get-tuple-element(l), index=1\nw = V get-tuple-element(l), index=2\nROOT t = (V, V) tuple(v, w)",
        {0: 0, 1: 1},
        [0, 1],
    ),
}


def inputs() -> list[np.ndarray]:
    generator = np.random.default_rng(0)
    return [generator.integers(-9, 9, (64, 128)).astype(np.float32) for _ in range(3)]


def same(got: list[np.ndarray], want: list[np.ndarray]) -> None:
    assert len(got) == len(want)
    for one, other in zip(got, want, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("case", CASES)
def test_what_a_module_gives_away_is_used_where_it_may_be(case: str, fake: types.ModuleType) -> None:
    body, aliases, honoured = CASES[case]
    text = text_of(body, aliases)
    module = hlo_opt.parse(text)
    entry = build_schedule(module).entry
    assert [k for k, _ in entry.donated] == honoured
    assert [k for k, _ in entry.apart] == sorted(aliases.keys() - set(honoured))
    assert all(why for _, why in entry.apart)
    want = Program(text.replace(" bitcast(", " reshape("), optimized=False)(inputs())
    if not has_compiler():
        pytest.skip("no C++ compiler")
    for executable in (hlo_opt.compile(module), hlo_opt.compile(module, form="plain"), hlo_opt.compile(module, "cupy")):
        kept, given = inputs(), inputs()
        same(executable(*kept), want)
        same(kept, inputs())
        same(executable(*given, donate=True), want)
        same(
            [a for k, a in enumerate(given) if k not in honoured],
            [a for k, a in enumerate(inputs()) if k not in honoured],
        )


@pytest.mark.parametrize("case", ["one of two operands", "after its last reader", "state of a loop"])
def test_the_callers_array_holds_the_result(case: str) -> None:
    if not has_compiler():
        pytest.skip("no C++ compiler")
    body, aliases, honoured = CASES[case]
    given = inputs()
    outputs = hlo_opt.compile(hlo_opt.parse(text_of(body, aliases)))(*given, donate=True)
    for k in honoured:
        assert np.shares_memory(given[k], outputs[aliases[k]])
        np.testing.assert_array_equal(given[k], outputs[aliases[k]])


def test_an_array_that_is_given_twice_is_not_overwritten() -> None:
    if not has_compiler():
        pytest.skip("no C++ compiler")
    module, given = hlo_opt.parse(text_of("ROOT n = V subtract(p, q)", {0: 0})), inputs()
    (got,) = hlo_opt.compile(module)(given[0], given[0], given[2], donate=True)
    np.testing.assert_array_equal(got, np.zeros((64, 128)))
    same(given, inputs())


def test_state_that_a_loop_owns_is_made_in_place() -> None:
    body, aliases, _ = CASES["state of a loop"]
    (loop,) = (op for op in build_schedule(hlo_opt.parse(text_of(body, aliases))).entry.ops if isinstance(op, LoopOp))
    assert loop.owned == loop.updated == (1, 2) and not loop.copied  # y, which reads w, goes before x
    (apart,) = (op for op in build_schedule(hlo_opt.parse(text_of(body, {}))).entry.ops if isinstance(op, LoopOp))
    assert not apart.updated and not apart.copied


def test_a_kernel_that_is_not_made_in_place_keeps_its_name() -> None:
    """One kernel serves both launches where nothing is given away, two where one of them has the input's memory."""
    body = "a = V negate(p)\nb = V negate(q)\nROOT t = (V, V) tuple(a, b)"
    assert len(build_schedule(hlo_opt.parse(text_of(body, {}))).kernels) == 1
    apart = build_schedule(hlo_opt.parse(text_of(body, {0: 0}))).kernels
    assert [kernel.own for kernel in apart] == [(), (0,)]
    assert [kernel.own for kernel in build_schedule(hlo_opt.parse(text_of(body, {0: 0, 1: 1}))).kernels] == [(0,)]


def test_the_peak_counts_the_copies_of_a_caller_that_keeps_its_arrays() -> None:
    body = "a = V negate(p)\nb = V sine(a)\nROOT n = V add(a, b)"
    apart, together = (peak_of(build_schedule(hlo_opt.parse(text_of(body, aliases)))).bytes for aliases in ({}, {0: 0}))
    assert apart == together == 6 * 64 * 128 * 4


def test_a_driver_says_which_inputs_it_overwrites() -> None:
    schedule = build_schedule(hlo_opt.parse(text_of("ROOT n = V subtract(p, q)", {1: 0})))
    text = driver_of(schedule, {k.symbol: f"{k.symbol}.cu" for k in schedule.kernels}).text
    assert "DONATED = (1,)" in text and "n = q  # nothing else reads it" in text


@pytest.mark.parametrize("case", ["results that need both", "after its last reader"])
def test_nothing_races_in_place(case: str) -> None:
    if not has_compiler():
        pytest.skip("no C++ compiler")
    body, aliases, _ = CASES[case]
    module = hlo_opt.parse(text_of(body, aliases))
    same(hlo_opt.compile(module, sanitize=True)(*inputs()), hlo_opt.evaluate(module, inputs()))


READ_BY_ALL = """HloModule m, input_output_alias={ {}: (0, {}, may-alias) }
body {
  s = (s32[], f32[64,256], f32[64,256]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  v = f32[64,256] get-tuple-element(s), index=1
  x = f32[64,256] get-tuple-element(s), index=2
  one = s32[] constant(1)
  zero = s32[] constant(0)
  j = s32[] add(i, one)
  w = f32[1,256] dynamic-slice(x, i, zero), dynamic_slice_sizes={1,256}
  r = f32[256] reshape(w)
  b = f32[64,256] broadcast(r), dimensions={1}
  y = f32[64,256] add(v, b)
  ROOT t = (s32[], f32[64,256], f32[64,256]) tuple(j, y, x)
}
condition {
  s = (s32[], f32[64,256], f32[64,256]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(60)
  ROOT l = pred[] compare(i, n), direction=LT
}
ENTRY e {
  p = f32[64,256] parameter(0)
  c = s32[] constant(0)
  s = (s32[], f32[64,256], f32[64,256]) tuple(c, p, p)
  l = (s32[], f32[64,256], f32[64,256]) while(s), condition=condition, body=body
  ROOT v = f32[64,256] get-tuple-element(l), index=1
}
"""


def test_state_is_not_made_in_an_array_that_rounds_read() -> None:
    """A lane that has ended would overwrite what others still read."""
    if not has_compiler():
        pytest.skip("no C++ compiler")
    module, _ = hlo_opt.fuse(hlo_opt.parse(READ_BY_ALL))
    schedule = build_schedule(module)
    assert [kernel.kind for kernel in schedule.kernels] == ["lane-loop"] and not schedule.entry.donated
    given = np.random.default_rng(0).integers(-9, 9, (64, 256)).astype(np.float32)
    want = hlo_opt.evaluate(module, [given])
    same(hlo_opt.compile(module)(given, donate=True), want)


IN_PLACE = {
    "rows": "z = f32[] constant(0)\ns = f32[64]{0} reduce(p, z), dimensions={1}, to_apply=f\n"
    "b = V broadcast(s), dimensions={0}\na = V subtract(p, b)\nROOT m = V multiply(a, q)",
    "columns": "z = f32[] constant(0)\ns = f32[128]{0} reduce(p, z), dimensions={0}, to_apply=f\n"
    "b = V broadcast(s), dimensions={1}\na = V subtract(p, b)\nROOT m = V multiply(a, q)",
    "halves": "a = f32[64,64]{1,0} slice(p), slice={[0:64], [0:64]}\n"
    "b = f32[64,64]{1,0} slice(p), slice={[0:64], [64:128]}\nc = f32[64,64]{1,0} subtract(a, b)\n"
    "d = f32[64,64]{1,0} add(a, b)\nROOT m = V concatenate(d, c), dimensions={1}",
    "pairs": "v = f32[64,64,2]{2,1,0} reshape(p)\na = f32[64,64,1]{2,1,0} slice(v), slice={[0:64], [0:64], [0:1]}\n"
    "b = f32[64,64,1]{2,1,0} slice(v), slice={[0:64], [0:64], [1:2]}\nc = f32[64,64,1]{2,1,0} subtract(a, b)\n"
    "d = f32[64,64,1]{2,1,0} add(a, b)\ne = f32[64,64,2]{2,1,0} concatenate(d, c), dimensions={2}\n"
    "ROOT m = V reshape(e)",
    "a window": "s = f32[10,128]{1,0} slice(p), slice={[5:15], [0:128]}\nd = f32[10,128]{1,0} add(s, s)\n"
    "i = s32[] constant(5)\nz = s32[] constant(0)\nROOT u = V dynamic-update-slice(p, d, i, z)",
}


@pytest.mark.parametrize("case", IN_PLACE)
def test_kernels_of_several_elements_are_made_in_place(case: str) -> None:
    if not has_compiler():
        pytest.skip("no C++ compiler")
    module, _ = hlo_opt.fuse(hlo_opt.parse(text_of(IN_PLACE[case], {0: 0})))
    assert len(build_schedule(module).kernels) == 1 and build_schedule(module).entry.donated == ((0, 0),)
    want = hlo_opt.evaluate(module, inputs())
    for options in ({}, {"form": "plain"}):
        executable = hlo_opt.compile(module, **options)
        same(executable(*inputs()), want)
        same(executable(*inputs(), donate=True), want)
    # The process under the sanitizers has inputs of its own and always gives them away.
    same(hlo_opt.compile(module, sanitize=True)(*inputs()), want)


def test_rows_that_are_peeled_are_made_in_place() -> None:
    if not has_compiler():
        pytest.skip("no C++ compiler")
    odd = text_of(IN_PLACE["rows"], {0: 0}).replace("[64,128]", "[64,1023]")
    module, _ = hlo_opt.fuse(hlo_opt.parse(odd))
    (kernel,) = build_schedule(module).kernels
    assert "first_vector" in kernel.source and build_schedule(module).entry.donated == ((0, 0),)
    generator = np.random.default_rng(0)
    given = [generator.integers(-9, 9, (64, 1023)).astype(np.float32) for _ in range(3)]
    want = hlo_opt.evaluate(module, given)
    for options in ({}, {"form": "plain"}, {"sanitize": True}):
        same(hlo_opt.compile(module, **options)(*[a.copy() for a in given], donate=True), want)


PRODUCT = """HloModule m, input_output_alias={{ {{}}: (0, {{}}, may-alias) }}

ENTRY e {{
  p = {kind}[{rows},{columns}] parameter(0)
  x = {kind}[{rows},{depth}] parameter(1)
  w = {kind}[{depth},{columns}] parameter(2)
  d = {kind}[{rows},{columns}] dot(x, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  ROOT r = {kind}[{rows},{columns}] add(p, d)
}}
"""


@pytest.mark.parametrize(
    ("kind", "plan", "rows", "columns", "depth"),
    [("f32", "matmul", 130, 77, 40), ("bf16", "tensor-matmul", 128, 96, 64), ("bf16", "tensor-matmul", 64, 64, 8192)],
)
def test_a_product_is_added_to_what_is_given_away(kind: str, plan: str, rows: int, columns: int, depth: int) -> None:
    if not has_compiler():
        pytest.skip("no C++ compiler")
    module, _ = hlo_opt.fuse(
        hlo_opt.parse(PRODUCT.format(kind=kind, rows=rows, columns=columns, depth=depth)),
        passes="product-fusion",
        what_if=["FUS408"],
    )
    schedule = build_schedule(module)
    assert [kernel.kind for kernel in schedule.kernels] == [plan] and schedule.entry.donated == ((0, 0),)
    generator = np.random.default_rng(0)
    shapes = [parameter.shape for parameter in module.entry.parameters]
    given = [generator.integers(-2, 3, shape.dimensions).astype(shape.type.dtype) for shape in shapes]
    want = hlo_opt.evaluate(module, given)
    for options in ({}, {"form": "plain"}, {"sanitize": True}):
        same(hlo_opt.compile(module, **options)(*[a.copy() for a in given], donate=True), want)


# ---- drawn modules


def drawn(seed: int) -> Module:
    """Values made of each other, some of them results, and results that may have the memory of inputs."""
    draw = random.Random(seed)
    names, lines = list("pqr"), ["z = f32[] constant(0)"]
    for number in range(draw.randint(3, 8)):
        one, other, name = draw.choice(names), draw.choice(names), f"v{number}"
        form = draw.randrange(7)
        if form == 0:
            lines.append(f"{name} = V reverse({one}), dimensions={{{draw.randrange(2)}}}")
        elif form == 1:
            lines.append(f"{name}s = f32[64]{{0}} reduce({one}, z), dimensions={{1}}, to_apply=f")
            lines.append(f"{name}b = V broadcast({name}s), dimensions={{0}}")
            lines.append(f"{name} = V subtract({other}, {name}b)")
        elif form == 2:
            lines.append(f"{name}s = f32[1,128]{{1,0}} slice({one}), slice={{[7:8], [0:128]}}")
            lines.append(f"{name}c = s32[] constant({draw.randrange(64)})")
            lines.append(f"{name}o = s32[] constant(0)")
            lines.append(f"{name} = V dynamic-update-slice({other}, {name}s, {name}c, {name}o)")
        else:
            lines.append(f"{name} = V {draw.choice(('add', 'subtract', 'maximum'))}({one}, {other})")
        names.append(name)
    results = [draw.choice(names[1:]) for _ in range(2)] + [names[-1]]
    lines.append(f"ROOT t = (V, V, V) tuple({', '.join(results)})")
    places = draw.sample(range(3), 3)
    return hlo_opt.parse(text_of("\n".join(lines), {k: places[k] for k in draw.sample(range(3), draw.randint(1, 3))}))


@pytest.mark.parametrize("seed", range(8))
def test_drawn_modules_give_the_same_in_place(seed: int, fake: types.ModuleType) -> None:
    if not has_compiler():
        pytest.skip("no C++ compiler")
    module = drawn(seed)
    want = Program(str(module), optimized=False)(inputs())
    if seed % 2:
        module, _ = hlo_opt.fuse(module)
    for executable in (hlo_opt.compile(module), hlo_opt.compile(module, "cupy")):
        given = inputs()
        same(executable(*given, donate=True), want)
        kept = sorted({0, 1, 2} - {k for k, _ in build_schedule(module).entry.donated})
        same([given[k] for k in kept], [inputs()[k] for k in kept])


def test_drawn_modules_give_something_away() -> None:
    honoured = [len(build_schedule(drawn(seed)).entry.donated) for seed in range(24)]
    refused = [len(build_schedule(drawn(seed)).entry.apart) for seed in range(24)]
    assert sum(honoured) >= 12 and sum(refused) >= 6


@pytest.mark.parametrize(
    ("name", "count"),
    [("mlp_train_step", 7), ("transformer_train_step", 9), ("cartpole_scan_separate", 4), ("residual_rms_norm", 1)],
)
def test_donations_of_dumps_are_honoured(name: str, count: int) -> None:
    path = Path(__file__).parents[2] / "testdata" / "dumps" / f"{name}.hlo"
    module, _ = hlo_opt.fuse(hlo_opt.parse(path.read_text(encoding="utf-8")))
    assert len(build_schedule(module).entry.donated) == count
