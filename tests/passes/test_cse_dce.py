"""What cse merges and dce drops, and what only looks as if it could be."""

from __future__ import annotations

import pytest

import hlo_opt
from hlo_opt.analysis.targets import target
from hlo_opt.fusion.context import FuseOptions, PassContext
from hlo_opt.ir import Computation, Module
from hlo_opt.passes.base import Pass
from hlo_opt.passes.cse import CommonSubexpressionElimination
from hlo_opt.passes.dce import DeadCodeElimination

H100 = target("h100_sxm")
V = "f32[8]{0}"
BODIES = f"""\
noisy {{ a = {V} parameter(0) z = f32[] constant(0) d = {V} rng(z, z), distribution=rng_uniform ROOT r = {V} bitcast(a) }}
hands_on {{ h = {V} parameter(0) t = token[] after-all() o = token[] outfeed(h, t), outfeed_shape={V} c = () custom-call(h), custom_call_target="f", custom_call_has_side_effect=true ROOT k = () tuple() }}
nothing {{ n = {V} parameter(0) ROOT k = () tuple() }}
same {{ s = {V} parameter(0) t = token[] after-all() o = token[] outfeed(s, t), outfeed_shape={V} e = f32[0]{{0}} slice(s), slice={{[0:0]}} ROOT r = {V} concatenate(s), dimensions={{0}} }}
calm {{ a = {V} parameter(0) ROOT r = {V} negate(a) }}
gives {{ g = {V} parameter(0) t = token[] after-all() o = token[] outfeed(g, t), outfeed_shape={V} u = (f32[8]{{0}}) tuple(g) ROOT r = {V} get-tuple-element(u), index=0 }}

"""


def run(one: Pass, lines: str, *, stop: int | None = None, bodies: str = BODIES) -> tuple[Module, bool]:
    """The module after one run, and what the pass said."""
    entry = "".join(f"  {line.strip()}\n" for line in lines.strip().splitlines())
    module = hlo_opt.parse(
        f"HloModule m\n\n{bodies}ENTRY e {{\n  p = {V} parameter(0)\n  b = pred[] parameter(1)\n{entry}}}\n"
    )
    hlo_opt.verify(module)
    said = one.run(module, PassContext(FuseOptions(H100, stop_after_step=stop)))
    hlo_opt.verify(hlo_opt.parse(str(module)))
    return module, said


def names(module: Module) -> list[str]:
    return [i.name for i in module.entry.instructions][2:]


def merged(lines: str) -> list[str]:
    return names(run(CommonSubexpressionElimination(), lines)[0])


def swept(lines: str) -> list[str]:
    return names(run(DeadCodeElimination(), lines)[0])


PAIR = f"ROOT r = ({V}, {V}) tuple(x, y)"
EQUAL = f"x = {V} abs(p)\ny = {V} abs(p)\n{PAIR}"


def test_equal_values_are_merged_also_where_others_have_side_effects():
    assert merged(EQUAL) == ["x", "r"]
    assert merged(
        f"z = f32[] constant(0)\nd = {V} rng(z, z), distribution=rng_uniform\nc = {V} call(p), to_apply=noisy\n{EQUAL}"
    ) == ["z", "d", "c", "x", "r"]
    assert merged(f"x = {V} call(p), to_apply=calm\ny = {V} call(p), to_apply=calm\n{PAIR}") == ["x", "r"]


def test_the_result_itself_may_be_a_value_that_there_is():
    module, said = run(CommonSubexpressionElimination(), f"x = {V} abs(p)\nROOT y = {V} abs(p)")
    assert said and names(module) == ["x"] and module.entry.root.name == "x"


def test_a_value_that_nobody_needs_is_left_to_dce():
    assert merged(f"x = {V} abs(p)\ny = {V} abs(p)\nROOT r = {V} negate(x)") == ["x", "y", "r"]


def test_what_waits_or_is_waited_for_stays():
    assert merged(
        f"x = {V} abs(p)\ny = {V} abs(p)\nc = {V} negate(p), control-predecessors={{y}}\nROOT r = ({V}, {V}, {V}) tuple(x, y, c)"
    ) == ["x", "y", "c", "r"]
    assert merged(f"n = {V} negate(p)\nx = {V} abs(n)\ny = {V} abs(n), control-predecessors={{n}}\n{PAIR}") == [
        "n",
        "x",
        "y",
        "r",
    ]
    assert merged(f"n = {V} negate(p)\nx = {V} abs(p)\ny = {V} abs(p), control-predecessors={{n}}\n{PAIR}") == [
        "n",
        "x",
        "y",
        "r",
    ]


def test_side_effects_stay_where_what_they_give_is_equal():
    nothing = 'x = () custom-call(p), custom_call_target="f", custom_call_has_side_effect=true'
    assert merged(f"{nothing}\n{nothing.replace('x =', 'y =')}\nROOT r = ((), ()) tuple(x, y)") == ["x", "y", "r"]
    assert merged(
        "x = () call(p), to_apply=hands_on\ny = () call(p), to_apply=hands_on\nROOT r = ((), ()) tuple(x, y)"
    ) == ["x", "y", "r"]
    chosen = "() conditional(b, p, p), true_computation=hands_on, false_computation=nothing"
    assert merged(f"x = {chosen}\ny = {chosen}\nROOT r = ((), ()) tuple(x, y)") == ["x", "y", "r"]
    assert merged(f"x = {V} call(p), to_apply=gives\nROOT r = ({V}, {V}) tuple(x, p)") == ["x", "r"]


def test_side_effects_that_are_only_started_stay():
    start = "((f32[], f32[]), f32[8]{0}, u32[]) rng-start(z, z), distribution=rng_uniform"
    lines = f"z = f32[] constant(0)\nx = {start}\ny = {start}\na = {V} rng-done(x)\nc = {V} rng-done(y)\n"
    assert merged(f"{lines}ROOT r = ({V}, {V}) tuple(a, c)") == ["z", "x", "y", "a", "c", "r"]
    assert swept(f"{lines}ROOT r = {V} negate(a)") == ["z", "x", "y", "a", "r"]


def test_layouts_and_configurations_are_kept_apart():
    text = "x = f32[4,2]{1,0} reshape(p)\ny = f32[4,2]{0,1} reshape(p)\nROOT r = (f32[4,2]{1,0}, f32[4,2]{0,1}) tuple(x, y)"
    assert merged(text) == ["x", "y", "r"]
    assert merged(EQUAL.replace("abs(p)\ny", 'abs(p), backend_config="a"\ny')) == ["x", "y", "r"]
    assert merged(EQUAL.replace("abs(p)", 'abs(p), backend_config="a"')) == ["x", "r"]


def test_parameters_without_a_value_stay():
    module = hlo_opt.parse(
        "HloModule m\n\nENTRY e {\n  a = () parameter(0)\n  b = () parameter(1)\n  ROOT r = ((), ()) tuple(a, b)\n}\n"
    )
    assert not CommonSubexpressionElimination().run(module, PassContext(FuseOptions(H100)))
    assert len(module.entry.parameters) == 2


THREE = f"x = {V} abs(p)\ny = {V} abs(p)\nz = {V} abs(p)\nROOT r = ({V}, {V}, {V}) tuple(x, y, z)"


@pytest.mark.parametrize(
    ("stop", "left", "expected"), [(0, ["x", "y", "z", "r"], False), (1, ["x", "z", "r"], True), (2, ["x", "r"], True)]
)
def test_cse_takes_as_many_steps_as_it_may(stop: int, left: list[str], expected: bool):
    module, said = run(CommonSubexpressionElimination(), THREE, stop=stop, bodies="")
    assert (names(module), said) == (left, expected)


@pytest.mark.parametrize("one", [CommonSubexpressionElimination(), DeadCodeElimination()])
def test_both_find_nothing_to_do_right_after_themselves(one: Pass):
    module, said = run(one, f"x = {V} abs(p)\ny = {V} abs(p)\nd = {V} negate(p)\nROOT r = ({V}, {V}) tuple(x, y)")
    assert said is True and one.idempotent
    assert one.run(module, PassContext(FuseOptions(H100))) is False


def test_cse_tells_what_it_changed(monkeypatch: pytest.MonkeyPatch):
    told: list[tuple[list[str], Module]] = []

    def changed_inside(computations: list[Computation], module: Module) -> None:
        told.append(([c.name for c in computations], module))

    module = hlo_opt.parse(
        f"HloModule m\n\ncalm {{ a = {V} parameter(0) ROOT r = {V} negate(a) }}\n\nENTRY e {{\n  p = {V} parameter(0)\n  {EQUAL}\n}}\n"
    )
    context = PassContext(FuseOptions(H100))
    monkeypatch.setattr(context.memory, "changed_inside", changed_inside)
    assert CommonSubexpressionElimination().run(module, context)
    assert told == [(["e"], module)] and CommonSubexpressionElimination.keeps_memory


def test_dce_drops_chains_and_what_is_read_twice():
    assert swept(f"x = {V} abs(p)\ny = {V} add(x, x)\nz = {V} negate(y)\nROOT r = {V} negate(p)") == ["r"]
    assert swept(f"x = {V} abs(p)\ny = {V} negate(x)\nROOT r = {V} negate(x)") == ["x", "r"]


def test_dce_keeps_what_waits_is_waited_for_and_acts():
    assert swept(f"x = {V} abs(p)\ny = {V} cosine(p), control-predecessors={{x}}\nROOT r = {V} negate(p)") == [
        "x",
        "y",
        "r",
    ]
    assert swept(f"x = {V} abs(p)\nROOT r = {V} negate(p), control-predecessors={{x}}") == ["x", "r"]
    assert swept(f"z = f32[] constant(0)\nd = {V} rng(z, z), distribution=rng_uniform\nROOT r = {V} negate(p)") == [
        "z",
        "d",
        "r",
    ]
    assert swept(
        f"x = {V} call(p), to_apply=noisy\ny = {V} call(p), to_apply=calm\nz = {V} sine(p)\nROOT r = {V} negate(p)"
    ) == ["x", "r"]
    chosen = f"{V} conditional(b, p, p), true_computation=noisy, false_computation=calm"
    assert swept(f"x = {chosen}\nROOT r = {V} negate(p)") == ["x", "r"]
    assert swept(f"ROOT r = {V} negate(p)") == ["r"]


def test_dce_says_whether_it_changed_anything():
    entry = f"ROOT r = {V} negate(p)"
    one = DeadCodeElimination()
    assert run(one, entry, bodies="")[1] is False
    module, said = run(one, entry)
    assert said is True and [c.name for c in module.computations] == ["e"]
    module, said = run(one, f"x = {V} abs(p)\n{entry}", bodies="")
    assert said is True and names(module) == ["r"]
    calm = "calm { a = f32[8]{0} parameter(0) ROOT r = f32[8]{0} negate(a) }\n\n"
    module, said = run(one, f"x = {V} call(p), to_apply=calm\n{entry}", bodies=calm)
    assert said is True and [c.name for c in module.computations] == ["e"]
