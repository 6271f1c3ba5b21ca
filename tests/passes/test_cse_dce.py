"""What cse merges and dce drops, and what only looks as if it could be."""

from __future__ import annotations

import numpy as np
import pytest

import hlo_opt
from hlo_opt.analysis.graph.numbering import Numbering
from hlo_opt.analysis.targets import target
from hlo_opt.fusion.caches import Cache
from hlo_opt.fusion.context import FuseOptions, PassContext
from hlo_opt.ir import Attribute, Called, Computation, Module, edit
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
        f"x = {V} abs(p)\ny = {V} abs(p)\nc = {V} negate(p), control-predecessors={{y}}\nROOT r = ({V}, {V}, {V}) "
        f"tuple(x, y, c)"
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
    text = (
        "x = f32[4,2]{1,0} reshape(p)\ny = f32[4,2]{0,1} reshape(p)\nROOT r = (f32[4,2]{1,0}, f32[4,2]{0,1}) tuple(x, "
        "y)"
    )
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

    def changed_inside(computations: set[Computation], module: Module) -> None:
        told.append((sorted(c.name for c in computations), module))

    body = f"a = {V} parameter(0)\n  x = {V} abs(a)\n  y = {V} abs(a)\n  ROOT r = {V} add(x, y)"
    module = hlo_opt.parse(
        f"HloModule m\n\ntwice {{\n  {body}\n}}\n\ncalm {{ a = {V} parameter(0) ROOT r = {V} negate(a) }}\n\nENTRY e "
        f"{{\n  p = {V} parameter(0)\n  f = {V} fusion(p), kind=kLoop, calls=twice\n  {EQUAL}\n}}\n"
    )
    context = PassContext(FuseOptions(H100))
    monkeypatch.setattr(context.memory, "changed_inside", changed_inside)
    assert CommonSubexpressionElimination().run(module, context)
    assert told == [(["twice"], module)] and CommonSubexpressionElimination.keeps_memory


def test_a_merge_in_the_entry_leaves_what_is_known_of_other_kernels():
    module = hlo_opt.parse(
        f"HloModule m\n\nENTRY e {{\n  p = {V} parameter(0)\n  q = {V} parameter(1)\n  x = {V} abs(p)\n"
        f"  y = {V} abs(p)\n  b = {V} bitcast(y)\n  s = {V} sine(b)\n  o = {V} negate(q)\n"
        f"  ROOT r = ({V}, {V}, {V}) tuple(x, s, o)\n}}\n"
    )
    context = PassContext(FuseOptions(H100))
    state = context.memory.state(module, H100)
    known = Cache(lambda state, instruction: instruction.name)
    for instruction in module.entry.instructions:
        state.caches.of(known, instruction)
    assert CommonSubexpressionElimination().run(module, context)
    assert context.memory.state(module, H100) is state
    assert {i.name for i in module.entry.instructions if i in state.caches.table(known)} == {"q", "o"}


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


OF_TWO = f"two {{ a = {V} parameter(0) c = {V} parameter(1) n = {V} negate(a) e = {V} exponential(c) t = {V} tanh(a) ROOT k = ({V}, {V}, {V}) tuple(n, e, t) }}\n\n"
WRITTEN = f"f = ({V}, {V}, {V}) fusion(p, q), kind=kLoop, calls=two"
READ = f"q = {V} abs(p)\n"


def kernel_of(lines: str, bodies: str = OF_TWO) -> str:
    """The fusions and their computations after dce."""
    module, said = run(DeadCodeElimination(), lines, bodies=bodies)
    again = DeadCodeElimination().run(module, PassContext(FuseOptions(H100)))
    assert said and not again
    return str(module)


def test_a_fusion_writes_and_reads_only_what_is_needed():
    text = kernel_of(
        f"{READ}{WRITTEN}\nx = {V} get-tuple-element(f), index=0\ny = {V} get-tuple-element(f), index=2\nROOT r = "
        f"({V}, {V}) tuple(y, x)"
    )
    assert "exponential" not in text and "abs" not in text
    assert f"%f = ({V}, {V}) fusion(%p), kind=kLoop" in text
    assert "get-tuple-element(%f), index=0" in text and "get-tuple-element(%f), index=1" in text
    module = hlo_opt.parse(text)
    (y, x) = hlo_opt.evaluate(module, [np.arange(8, dtype=np.float32), np.bool_(True)])
    assert np.array_equal(x, -np.arange(8, dtype=np.float32)) and np.array_equal(
        y, np.tanh(np.arange(8, dtype=np.float32))
    )


def test_a_fusion_of_one_result_gives_an_array():
    text = kernel_of(f"{READ}{WRITTEN}\nx = {V} get-tuple-element(f), index=1\nROOT r = {V} negate(x)")
    assert f"%f = {V} fusion(%q), kind=kLoop" in text and "tanh" not in text and "get-tuple-element" not in text
    assert f"ROOT %f = {V} fusion(%q)" in kernel_of(f"{READ}{WRITTEN}\nROOT x = {V} get-tuple-element(f), index=1")


def test_what_only_an_unneeded_result_reads_goes_too():
    chain = (
        f"g = ({V}, {V}, {V}) fusion(p, p), kind=kLoop, calls=other\nu = {V} get-tuple-element(g), index=0\nq = {V} "
        f"get-tuple-element(g), index=1\n"
    )
    lines = f"{chain}{WRITTEN}\nx = {V} get-tuple-element(f), index=0\nROOT r = ({V}, {V}) tuple(x, u)"
    text = kernel_of(lines, OF_TWO + OF_TWO.replace("two {", "other {"))
    assert f"%g = {V} fusion(" in text and "exponential" not in text


@pytest.mark.parametrize(
    "lines",
    [
        f"{WRITTEN}, output_to_operand_aliasing={{{{1}}: (0, {{}})}}\nx = {V} get-tuple-element(f), index=1\nROOT r = "
        f"{V} negate(x)",
        f"{WRITTEN.replace('kLoop', 'kCustom')}\nx = {V} get-tuple-element(f), index=1\nROOT r = {V} negate(x)",
        f"{WRITTEN}\nx = {V} get-tuple-element(f), index=1\nROOT r = (({V}, {V}, {V}), {V}) tuple(f, x)",
        f"{WRITTEN}\nx = {V} get-tuple-element(f), index=1\ng = {WRITTEN[4:].replace('p, q', 'q, q')}\nz = {V} "
        f"get-tuple-element(g), index=1\nROOT r = ({V}, {V}) tuple(x, z)",
        f"{WRITTEN}\nx = {V} get-tuple-element(f), index=1, control-predecessors={{q}}\nROOT r = {V} negate(x)",
        f"{WRITTEN}, sharding={{{{replicated}}, {{replicated}}, {{replicated}}}}\nx = {V} get-tuple-element(f), "
        f"index=1\nROOT r = {V} negate(x)",
        f"ROOT {WRITTEN}",
        f"w = {V} abs(p)\n{WRITTEN}, control-predecessors={{w}}\nx = {V} get-tuple-element(f), index=1\nROOT r = {V} "
        f"negate(x)",
        f"{WRITTEN}\nx = {V} get-tuple-element(f), index=1\nROOT r = {V} negate(x), control-predecessors={{f}}",
    ],
    ids=["aliases", "library", "whole", "two-callers", "waits", "sharding", "root", "kernel-waits", "waited-for"],
)
def test_results_that_are_named_or_shared_stay(lines: str):
    module, _ = run(DeadCodeElimination(), READ + lines, bodies=OF_TWO)
    (body,) = [c for c in module.computations if c.name == "two"]
    assert len(body.root.operands) == 3


def test_a_kernel_that_would_only_copy_is_not_made():
    body = f"one {{ a = {V} parameter(0) n = {V} negate(a) ROOT k = ({V}, {V}) tuple(n, a) }}\n\n"
    lines = (
        f"f = ({V}, {V}) fusion(p), kind=kLoop, calls=one\nx = {V} get-tuple-element(f), index=1\nROOT r = {V} "
        f"negate(x)"
    )
    module, said = run(DeadCodeElimination(), lines, bodies=body)
    assert not said and "tuple(%n, %a)" in str(module)


def test_a_fusion_that_is_only_waited_for_stays():
    module, said = run(DeadCodeElimination(), f"{READ}{WRITTEN}\nROOT r = {V} negate(p), "
                                              f"control-predecessors={{f}}", bodies=OF_TWO)  # fmt: skip
    assert not said and names(module) == ["q", "f", "r"]


def test_two_results_of_one_operation_stay_together():
    largest = f"larger {{ a = f32[] parameter(0) b = f32[] parameter(1) c = f32[] parameter(2) d = f32[] parameter(3) m = f32[] maximum(a, c) n = f32[] minimum(b, d) ROOT t = (f32[], f32[]) tuple(m, n) }}\n\nboth {{ x = {V} parameter(0) z = f32[] constant(0) ROOT r = (f32[], f32[]) reduce(x, x, z, z), dimensions={{0}}, to_apply=larger }}\n\n"
    lines = (
        "f = (f32[], f32[]) fusion(p), kind=kInput, calls=both\nx = f32[] get-tuple-element(f), index=1\nROOT r = "
        "f32[] negate(x)"
    )
    module, said = run(DeadCodeElimination(), lines, bodies=largest)
    assert not said and names(module) == ["f", "x", "r"]


def test_what_was_looked_at_is_looked_at_again_after_an_edit_of_it_or_of_what_it_calls(monkeypatch: pytest.MonkeyPatch):
    numbered: list[str] = []
    real = Numbering.computation
    monkeypatch.setattr(
        Numbering, "computation", lambda self, c, arguments: numbered.append(c.name) or real(self, c, arguments)
    )
    module, _ = run(CommonSubexpressionElimination(), f"x = {V} call(p), to_apply=calm\nROOT r = {V} abs(x)")
    context = PassContext(FuseOptions(H100))
    assert "e" in numbered
    numbered.clear()
    assert not CommonSubexpressionElimination().run(module, context) and not numbered
    calm = next(c for c in module.computations if c.name == "calm")
    edit.set_attribute(calm.root, "frontend_attributes", Attribute("{}"))
    assert not CommonSubexpressionElimination().run(module, context) and "e" in numbered


def test_values_that_differed_are_not_numbered_again_while_only_kernels_are_joined(monkeypatch: pytest.MonkeyPatch):
    lines = f"x = {V} call(p), to_apply=calm\ny = {V} abs(x)\nROOT r = {V} negate(y)"
    module, _ = run(CommonSubexpressionElimination(), lines)
    context = PassContext(FuseOptions(H100))
    module.entry.facts.clear()
    CommonSubexpressionElimination().run(module, context)
    assert context.memory.distinct == {module.entry}
    module.entry.facts.clear()
    with monkeypatch.context() as patch:
        patch.setattr(Numbering, "computation", lambda *_: pytest.fail("was numbered"))
        assert not CommonSubexpressionElimination().run(module, context)
    context.memory.clear()  # what a pass does that changes more than that
    assert not context.memory.distinct
    edit.create(
        module.entry, "again", "abs", module.entry.root.shape, module.entry.root.operands[0].operands, root=True
    )
    assert CommonSubexpressionElimination().run(module, context)
    assert context.memory.distinct == {module.entry}  # what is left


def test_an_effect_is_never_merged_so_its_value_may_be_there_twice():
    call = f'c = {V} custom-call(p), custom_call_target="f", custom_call_has_side_effect=true'
    lines = f"a = {V} abs(p)\nb = {V} abs(p)\n{call}\nt = ({V}, {V}, {V}) tuple(a, b, c)\n"
    lines += f"ROOT r = {V} get-tuple-element(t), index=2"
    context = PassContext(FuseOptions(H100))
    module = hlo_opt.parse(f"HloModule m\n\nENTRY e {{\n p = {V} parameter(0)\n{lines}\n}}\n")
    assert CommonSubexpressionElimination().run(module, context)
    assert context.memory.distinct == {module.entry}


def test_values_that_may_not_be_merged_are_equal_still():
    lines = f"x = {V} abs(p), control-predecessors={{p}}\ny = {V} abs(p)\nz = {V} abs(p)\n"
    lines += f"ROOT r = ({V}, {V}, {V}) tuple(x, y, z)"
    context = PassContext(FuseOptions(H100))
    module = hlo_opt.parse(f"HloModule m\n\nENTRY e {{\n p = {V} parameter(0)\n{lines}\n}}\n")
    assert CommonSubexpressionElimination().run(module, context)
    assert len(module.entry.instructions) == 4 and not context.memory.distinct


def test_the_tuple_that_joined_kernels_write_may_be_the_result():
    """All values differ before; afterwards the kernel's tuple is put together once more."""
    module, _ = run(CommonSubexpressionElimination(), f"x = {V} abs(p)\ny = {V} negate(p)\n{PAIR}")
    context = PassContext(FuseOptions(H100))
    module.entry.facts.clear()
    cse = CommonSubexpressionElimination()
    cse.run(module, context)
    assert context.memory.distinct == {module.entry}
    body = edit.new_computation(module, "both")
    a = edit.create_parameter(body, "a", module.entry.parameters[0].shape, 0)
    values = [edit.create(body, opcode, opcode, a.shape, [a]) for opcode in ("abs", "negate")]
    root = edit.create_tuple(body, values, root=True)
    called = {"kind": Attribute.of("kLoop"), "calls": Called(body)}
    both = edit.create(module.entry, "both", "fusion", root.shape, [module.entry.parameters[0]], called)
    for n, value in enumerate(list(module.entry.root.operands)):
        edit.redirect_users(value, edit.create_element(both, n))
        edit.remove(value)
    edit.sort(module.entry)
    assert cse.run(module, context) and module.entry.root is both


def test_a_sort_in_a_kernel_writes_what_is_read_of_it():
    less = f"less {{ a = f32[] parameter(0) b = f32[] parameter(1) c = f32[] parameter(2) d = f32[] parameter(3) ROOT r = pred[] compare(a, b), direction=LT }}\n\nboth {{ x = {V} parameter(0) n = {V} negate(x) ROOT r = ({V}, {V}) sort(x, n), dimensions={{0}}, to_apply=less }}\n\n"
    lines = (
        f"f = ({V}, {V}) fusion(p), kind=kLoop, calls=both\nx = {V} get-tuple-element(f), index=1\nROOT r = {V} "
        f"negate(x)"
    )
    module, said = run(DeadCodeElimination(), lines, bodies=less)
    (fusion,) = [i for i in module.entry.instructions if i.opcode == "fusion"]
    assert said and names(module) == ["f", "r"] and fusion.called_by("calls").root.attribute("index", int) == 1
