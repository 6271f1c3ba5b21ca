"""What closes a launch of the horizontal passes, kernel by kernel: each limit at its value and one beyond."""

from __future__ import annotations

import pytest
from small_modules import H100, engine_of, module_of, named

import hlo_opt
from hlo_opt.analysis.targets import target
from hlo_opt.diag import Reason
from hlo_opt.fusion.context import FuseOptions, PassContext
from hlo_opt.fusion.engine import Engine
from hlo_opt.ir import Instruction, Module
from hlo_opt.passes.horizontal_input_fusion import HorizontalInputFusion
from hlo_opt.passes.horizontal_loop_fusion import HorizontalLoopFusion, argument_room

ROW, WIDE = "f32[64]{0}", "f32[64,96]{1,0}"
ROWS = "dimensions={1}, to_apply=sum"
TRITON = 'kind=kCustom, backend_config={"fusion_backend_config":{"kind":"__triton"}}'
INPUTS = (
    f"p = {ROW} parameter(0)",
    f"w = {WIDE} parameter(1)",
    "z = f32[] constant(0)",
    "h = bf16[64]{0} parameter(2)",
)
KERNELS = {
    "of_two": (f"x0 = {ROW} parameter(0)", f"y0 = {ROW} negate(x0)", f"t0 = ({ROW}, {ROW}) tuple(y0, x0)"),
    "of_types": (f"x1 = {ROW} parameter(0)", f"y1 = {ROW} negate(x1)", "c1 = bf16[64]{0} convert(x1)",
        f"t1 = ({ROW}, bf16[64]{{0}}) tuple(y1, c1)"),
    "plain": (f"x2 = {ROW} parameter(0)", f"y2 = {ROW} negate(x2)"),
    "sums": (f"x3 = {WIDE} parameter(0)", "z3 = f32[] constant(0)", f"y3 = {ROW} reduce(x3, z3), {ROWS}"),
    "tiled": (f"x4 = {ROW} parameter(0)", f"y4 = {ROW} negate(x4)"),
}  # fmt: skip
LOOP = HorizontalLoopFusion()


def no(code: str, **numbers: object) -> Reason:
    return Reason.of(code, **numbers)


def read(*lines: str) -> tuple[Engine, dict[str, Instruction]]:
    """`r` reads them all."""
    module = module_of(*INPUTS, *lines, **KERNELS)
    return engine_of(module)


def consumed(*lines: str) -> tuple[str, ...]:
    names = [line.split(" = ")[0] for line in lines]
    values = [line.split(" = ")[1] for line in lines]
    shapes = [v[: v.index(") ") + 1] if v.startswith("(") else v.split(" ")[0] for v in values]
    return *lines, f"r = ({', '.join(shapes)}) tuple({', '.join(names)})"


@pytest.mark.parametrize(
    ("line", "form"),
    [
        (f"a = {ROW} negate(p)", ""),
        (f"a = {ROW} reverse(p), dimensions={{0}}", "single reverse"),
        (f"a = {ROW} rng(z, z), distribution=rng_uniform", "kernel of its own"),
        (f"a = {ROW} reduce(w, z), {ROWS}", "single reduce"),
        (f"a = {ROW} fusion(p), kind=kLoop, calls=plain", ""),
        (f"a = {ROW} fusion(p), {TRITON}, calls=tiled", "Triton fusion"),
        (f"a = {ROW} fusion(w), kind=kInput, calls=sums", "reduction kernel"),
        ("a = f32[64,64]{1,0} dot(w, w), lhs_contracting_dims={1}, rhs_contracting_dims={1}", "library call"),
        (f'a = {ROW} custom-call(p), custom_call_target="f"', "kernel of its own"),
        ("a = s32[64]{0} iota(), iota_dimension=0", "single iota"),
    ],
)
def test_what_is_a_loop(line: str, form: str):
    engine, of = read(*consumed(line))
    assert LOOP._form(engine, of["a"]) == form
    against = [r for r in LOOP._against(engine, of["a"], of["r"]) if r.code == "FUS142"]
    assert against == ([no("FUS142", instruction="a", form=form)] if form else [])


def test_what_speaks_against_a_candidate():
    engine, of = read(
        f"a = ({ROW}, bf16[64]{{0}}) fusion(p), kind=kLoop, calls=of_types",
        f"g = {ROW} get-tuple-element(a), index=0",
        f"o = {ROW} abs(g)",
        f"r = {ROW} add(g, o)",
    )
    strict = HorizontalLoopFusion(max_elements=63, max_instructions=3)
    assert list(strict._against(engine, of["a"], of["r"])) == [
        no("FUS141", instruction="a", consumer="r", user="o"),
        no("FUS441", instruction="a", elements=64, limit=63, option="max-elements"),
        no("FUS442", instruction="a", size=4, limit=3),
        no("FUS443", instruction="a", types="bf16, f32"),
    ]
    loose = HorizontalLoopFusion(max_elements=64, max_instructions=4, mixed_types=True)
    assert [r.code for r in loose._against(engine, of["a"], of["r"])] == ["FUS141"]
    assert strict._unfit(engine, of["a"], of["r"]) == no("FUS141", instruction="a", consumer="r", user="o")
    engine.disabled = frozenset({"FUS141"})
    assert loose._unfit(engine, of["a"], of["r"]) is None
    engine.forbidden["t1", ""] = no("FUS303", elements=2, limit=1)
    assert loose._unfit(engine, of["a"], of["r"]) == no("FUS303", elements=2, limit=1)


def kernels(*sizes: int, opcode: str = "negate") -> tuple[Engine, list[Instruction]]:
    lines = [f"p{n} = f32[{size}]{{0}} parameter({n + 3})" for n, size in enumerate(sizes)]
    values = [f"a{n} = f32[{size}]{{0}} {opcode}(p{n})" for n, size in enumerate(sizes)]
    engine, of = read(*lines, *consumed(*values))
    return engine, [of[f"a{n}"] for n in range(len(sizes))]


def test_types_and_numbers_of_outputs_are_equal_in_a_launch():
    lines = consumed(
        f"a = {ROW} negate(p)",
        "b = bf16[64]{0} negate(h)",
        f"c = ({ROW}, {ROW}) fusion(p), kind=kLoop, calls=of_two",
        f"d = {ROW} abs(p)",
    )
    engine, of = read(*lines)
    mixed = HorizontalLoopFusion(mixed_types=True)
    for first, second, outputs in (
        ("a", "b", ("1 f32", "1 bf16")),
        ("a", "c", ("1 f32", "2 f32")),
        ("c", "a", ("2 f32", "1 f32")),
    ):
        wanted = no("FUS444", first=first, first_outputs=outputs[0], second=second, second_outputs=outputs[1])
        assert list(LOOP._limits(engine, [of[first]], of[second])) == [wanted]
        assert not list(mixed._limits(engine, [of[first]], of[second]))
    assert not list(LOOP._limits(engine, [of["a"]], of["d"]))
    assert [LOOP._order(engine, of[n]) for n in "ac"] == [("f32", 1, 1, 64, (64,)), ("f32", 2, 3, 64, (64,))]
    assert [mixed._order(engine, of[n]) for n in "bc"] == [("", 0, 1, 64, (64,)), ("", 0, 3, 64, (64,))]


@pytest.mark.parametrize(
    ("sizes", "limit", "instruction"), [((10, 9), 10, ""), ((10, 9), 9, "a0"), ((9, 10), 9, "a1"), ((10, 10), 9, "")]
)
def test_kernels_of_several_sizes_in_a_launch(sizes: tuple[int, int], limit: int, instruction: str):
    engine, (one, other) = kernels(*sizes)
    found = list(HorizontalLoopFusion(max_mixed_elements=limit)._limits(engine, [one], other))
    wanted = no("FUS441", instruction=instruction, elements=10, limit=limit, option="max-mixed-elements")
    assert found == ([wanted] if instruction else [])


def test_kernels_that_are_alike_share_a_launch_at_any_size():
    engine, (one, other) = kernels(10, 9)
    assert not list(HorizontalLoopFusion(max_mixed_elements=1, any_mixed_alike=True)._limits(engine, [one], other))
    engine, of = read(*consumed("a = f32[64]{0} negate(p)", f"b = ({ROW}, {ROW}) fusion(p), kind=kLoop, calls=of_two"))
    mixed = HorizontalLoopFusion(max_mixed_elements=1, any_mixed_alike=True, mixed_types=True)
    assert not list(mixed._limits(engine, [of["a"]], of["b"]))  # of one shape
    h = kernels(10)[1][0]
    found = list(mixed._limits(engine, [h], of["b"]))
    assert [r.code for r in found] == ["FUS441"]


@pytest.mark.parametrize(("name", "limit"), [("h100_sxm", 32_764), ("a100_sxm_80", 4096)])
def test_arguments_are_as_many_as_a_device_takes(name: str, limit: int):
    assert argument_room(target(name)) == limit
    lines = [f"  p{n} = f32[8]{{0}} parameter({n})\n" for n in range(300)]
    lines += [f"  a{n} = f32[8]{{0}} negate(p{n})\n" for n in range(300)]
    shapes, names = ", ".join(["f32[8]{0}"] * 300), ", ".join(f"a{n}" for n in range(300))
    text = "HloModule m\nENTRY e {\n" + "".join(lines) + f"  ROOT t = ({shapes}) tuple({names})\n}}\n"
    fused, _ = hlo_opt.fuse(hlo_opt.parse(text), target=name)
    launched = [i for i in fused.entry.instructions if i.opcode == "fusion"]
    assert len(launched) == (1 if limit > 600 * 8 else 2)


def test_outputs_of_a_launch():
    engine, plain = kernels(*[8] * 4)
    assert not list(HorizontalLoopFusion(max_plain_outputs=4, max_outputs=1)._limits(engine, plain[:3], plain[3]))
    assert list(HorizontalLoopFusion(max_plain_outputs=3)._limits(engine, plain[:3], plain[3])) == [
        no("FUS241", outputs=4, limit=3)
    ]
    engine, of = read(
        *consumed(
            f"a = ({ROW}, {ROW}) fusion(p), kind=kLoop, calls=of_two",
            f"b = ({ROW}, {ROW}) fusion(p), kind=kLoop, calls=of_two",
        )
    )
    assert not list(HorizontalLoopFusion(max_outputs=4, max_plain_outputs=1)._limits(engine, [of["a"]], of["b"]))
    assert list(HorizontalLoopFusion(max_outputs=3)._limits(engine, [of["a"]], of["b"])) == [
        no("FUS241", outputs=4, limit=3)
    ]


def test_pointers_of_a_launch():
    engine, plain = kernels(*[8] * 3)
    assert not list(HorizontalLoopFusion(max_argument_bytes=49)._limits(engine, plain[:2], plain[2]))
    assert list(HorizontalLoopFusion(max_argument_bytes=48)._limits(engine, plain[:2], plain[2])) == [
        no("FUS242", bytes=48, limit=48)
    ]


@pytest.mark.parametrize(("forced", "disabled"), [((), ()), ((("a0", "a2"),), ()), ((), ("FUS241",))])
def test_a_pair_that_is_forced_or_a_rule_that_is_off_opens_a_launch(
    forced: tuple[tuple[str, str], ...], disabled: tuple[str, ...]
):
    engine, plain = kernels(8, 8, 8)
    engine.forced, engine.disabled = frozenset(forced), frozenset(disabled)
    found = list(HorizontalLoopFusion(max_plain_outputs=2)._apart(engine, plain[:2], plain[2]))
    assert found == ([] if forced or disabled else [no("FUS241", outputs=3, limit=2)])


def test_launches_take_kernels_in_the_order_of_their_sizes():
    engine, _ = kernels(30, 10, 40, 20)
    entry = engine.module.entry
    spans = HorizontalLoopFusion(max_plain_outputs=3)._spans(engine, entry.root)
    assert [[i.name for i in span] for span in spans] == [["a1", "a3", "a0"], ["a2"]]
    assert not list(HorizontalLoopFusion(max_elements=9)._spans(engine, entry.root))


def test_what_each_neighbour_has_against_it_is_told():
    lines = consumed(
        f"a = {ROW} negate(p)",
        f"b = {ROW} reverse(p), dimensions={{0}}",
        'c = f32[64]{0} custom-call(p), custom_call_target="f"',
        "d = f32[64]{0} abs(p)",
    )
    engine, _ = read(*lines)
    told = list(LOOP.sibling_refusals(engine, engine.module.entry))
    assert [(t.first.name, t.second.name, [r.code for r in t.reasons]) for t in told] == [
        ("a", "b", ["FUS142"]),
        ("b", "d", ["FUS142"]),
    ]
    engine.disabled = frozenset({"FUS142"})
    assert [[r.code for r in t.reasons] for t in LOOP.sibling_refusals(engine, engine.module.entry)] == [[], []]


# ---- reductions

INPUT = HorizontalInputFusion()
SUMS = (
    "s = f32[32,96]{1,0} parameter(3)",
    "u = f32[96,64]{1,0} parameter(4)",
    "few = f32[4,64]{1,0} parameter(5)",
)
REDUCED = (
    f"a = {ROW} reduce(w, z), {ROWS}",
    f"b = f32[32]{{0}} reduce(s, z), {ROWS}",
    f"c = {ROW} fusion(w), kind=kInput, calls=sums",
    f"d = {ROW} reduce(few, z), dimensions={{0}}, to_apply=sum",
    f"e2 = {ROW} negate(p)",
    "f = f32[64,64]{1,0} dot(w, w), lhs_contracting_dims={1}, rhs_contracting_dims={1}",
    f"g = f32[96]{{0}} reduce(u, z), {ROWS}",
)


def test_which_kernels_are_reductions():
    engine, of = read(*SUMS, *consumed(*REDUCED))
    assert [n for n in ("a", "b", "c", "d", "e2", "f", "g") if INPUT._is_reduction(engine, of[n])] == [
        "a",
        "b",
        "c",
        "g",
    ]
    assert [i.name for i in INPUT._candidates(engine, of["r"])] == ["b", "a", "c", "g"]
    assert INPUT._order(engine, of["c"]) == (2, (64, 96), 3)


def test_reductions_that_others_read_are_no_candidates():
    engine, _ = read(
        *SUMS,
        REDUCED[0],
        f"o = {ROW} abs(a)",
        f"c = {REDUCED[2].split(' = ')[1]}",
        f"r = ({ROW}, {ROW}, {ROW}) tuple(a, c, o)",
    )
    module = engine.module
    last = named(module, "r")
    assert [i.name for i in INPUT._candidates(engine, last)] == ["c"]
    engine.disabled = frozenset({"FUS141"})
    assert [i.name for i in INPUT._candidates(engine, last)] == ["a", "c"]


def told(engine: Engine, fuser: HorizontalInputFusion = INPUT) -> list[tuple[str, str, list[str]]]:
    found = fuser.sibling_refusals(engine, engine.module.entry)
    return [(t.first.name, t.second.name, [r.code for r in t.reasons]) for t in found]


def test_what_keeps_neighbouring_reductions_apart():
    engine, _ = read(*SUMS, *consumed(*REDUCED))
    assert told(engine) == [("b", "a", ["FUS432", "FUS431"]), ("a", "c", []), ("c", "g", ["FUS432"])]
    (heroes, shapes), *_ = [t.reasons for t in INPUT.sibling_refusals(engine, engine.module.entry)]
    assert all((r.numbers["first"], r.numbers["second"]) == ("b", "a") for r in (heroes, shapes))
    assert told(engine, HorizontalInputFusion(any_form=True)) == [("b", "a", []), ("a", "c", []), ("c", "g", [])]
    engine.disabled = frozenset({"FUS431"})
    assert told(engine)[0] == ("b", "a", ["FUS432"])
    engine.disabled = frozenset()
    engine.forced = frozenset({("a", "b")})
    assert told(engine)[0] == ("b", "a", [])
    engine.forbidden["y3", ""] = no("FUS303", elements=2, limit=1)
    assert told(engine)[1:] == [("a", "c", ["FUS303"]), ("c", "g", ["FUS303", "FUS432"])]


def run(
    fuser: HorizontalInputFusion | HorizontalLoopFusion, module: Module, steps: int | None = None
) -> tuple[bool, list[str]]:
    context = PassContext(FuseOptions(H100, stop_after_step=steps))
    changed = fuser.run(module, context)
    launched = [i for i in module.entry.instructions if i.opcode in ("fusion", "reduce", "negate", "abs", "tanh")]
    return changed, sorted(f"{i.opcode} {sum(1 for _ in i.shape.leaves())}" for i in launched)


@pytest.mark.parametrize(
    ("steps", "left"),
    [
        (0, ["reduce 1"] * 4),
        (1, ["fusion 2", "reduce 1", "reduce 1"]),
        (2, ["fusion 3", "reduce 1"]),
        (None, ["fusion 3", "reduce 1"]),
    ],
)
def test_reductions_are_joined_one_by_one(steps: int | None, left: list[str]):
    lines = consumed(
        *(f"a{n} = {ROW} reduce(w, z), {ROWS}" for n in range(3)),
        "b = f32[32]{0} reduce(s, z), dimensions={1}, to_apply=sum",
    )
    module = module_of(*INPUTS, *SUMS, *lines)
    assert run(INPUT, module, steps) == (steps != 0, left)


@pytest.mark.parametrize(
    ("steps", "left"), [(0, ["abs 1", "negate 1", "tanh 1"]), (1, ["fusion 2", "tanh 1"]), (None, ["fusion 3"])]
)
def test_loops_are_joined_one_by_one(steps: int | None, left: list[str]):
    lines = consumed(f"a = {ROW} negate(p)", f"b = {ROW} abs(p)", f"c = {ROW} tanh(p)")
    module = module_of(*INPUTS, *lines)
    assert run(LOOP, module, steps) == (steps != 0, left)


def test_the_defaults_are_those_of_xla():
    wanted = {
        "max_elements": 2**26,
        "max_mixed_elements": 2**18,
        "max_instructions": 128,
        "max_outputs": 32,
        "max_plain_outputs": 64,
        "max_argument_bytes": 4000,
    }
    assert wanted.items() <= vars(LOOP).items() and not LOOP.mixed_types and not INPUT.any_form


def test_a_kernel_is_as_large_as_its_first_output():
    held = (
        f"x9 = {ROW} parameter(0)",
        f"y9 = {ROW} negate(x9)",
        "w9 = f32[32]{0} slice(x9), slice={[0:32]}",
        f"t9 = ({ROW}, f32[32]{{0}}) tuple(y9, w9)",
    )
    module = module_of(*INPUTS, f"f = ({ROW}, f32[32]{{0}}) fusion(p), kind=kLoop, calls=held9", held9=held)
    engine, kernel = Engine(module, PassContext(FuseOptions(H100))), module.entry.root
    for limit, codes in ((64, []), (63, ["FUS441"])):
        found = HorizontalLoopFusion(max_elements=limit)._against(engine, kernel, kernel)
        assert [r.code for r in found if r.code != "FUS142"] == codes
    assert LOOP._order(engine, kernel)[3:] == (64, (64,))
