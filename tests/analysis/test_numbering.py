import numpy as np
import pytest

import hlo_opt
from hlo_opt.analysis.graph import numbering
from hlo_opt.analysis.graph.inlining import inline, is_plain_call
from hlo_opt.analysis.graph.numbering import Numbered, Numbering, Table, agree, all_differ
from hlo_opt.analysis.graph.occurrences import VisitBudget
from hlo_opt.diag import VerifyError
from hlo_opt.ir import Literal, Shape
from hlo_opt.ir.element_type import ELEMENT_TYPES
from hlo_opt.ir.shape import Layout, array


def same(one: str, other: str) -> bool:
    table = Table()
    left = Numbering(hlo_opt.parse(f"HloModule m\n\n{one}"), table).entry()
    right = Numbering(hlo_opt.parse(f"HloModule m\n\n{other}"), table).entry()
    return agree(table, left, right).pairs is not None


def entry(body: str) -> str:
    return f"ENTRY e {{\n p = f32[8]{{0}} parameter(0)\n q = f32[8]{{0}} parameter(1)\n {body}\n}}\n"


def test_names_metadata_and_commuted_operands_do_not_count():
    assert same(
        entry('ROOT a = f32[8]{0} add(p, q), metadata={op_name="x"}'),
        entry("ROOT other = f32[8]{0} add(q, p)"),
    )
    assert not same(entry("ROOT a = f32[8]{0} subtract(p, q)"), entry("ROOT a = f32[8]{0} subtract(q, p)"))


def test_attributes_and_types_count():
    assert not same(
        entry("ROOT a = pred[8]{0} compare(p, q), direction=LT"),
        entry("ROOT a = pred[8]{0} compare(p, q), direction=GT"),
    )
    assert not same(entry("ROOT a = f32[8]{0} convert(p)"), entry("ROOT a = bf16[8]{0} convert(p)"))


PAIR = "t = (f32[8]{0}, f32[8]{0}) tuple(p, q)\n b = (f32[8]{0}, f32[8]{0}) opt-barrier(t)\n"
EMPTY = "n = () tuple()\n t = ((), ()) tuple(n, n)\n b = ((), ()) opt-barrier(t)\n"


@pytest.mark.parametrize(
    ("body", "certain"),
    [
        ("a = f32[8]{0} add(p, q)\n b = f32[8]{0} subtract(p, q)\n ROOT c = f32[8]{0} add(a, b)", True),
        ("c = f32[] constant(1)\n ROOT d = f32[] constant(2)", True),
        ("a = s32[8]{0} convert(p)\n ROOT b = s8[8]{0} convert(p)", True),
        ("a = f32[8]{0} add(p, q)\n ROOT b = f32[8]{0} add(q, p)", False),
        ("a = f32[8]{0} subtract(p, q)\n ROOT b = f32[8]{0} subtract(q, p)", False),
        ("c = f32[] constant(1)\n ROOT d = f32[] constant(1.0)", False),
        ("t = (f32[8]{0}) tuple(p)\n ROOT g = f32[8]{0} get-tuple-element(t), index=0", False),
        ("t = (f32[8]{0}) tuple(p)\n ROOT u = (f32[8]{0}, f32[8]{0}) tuple(p, p)", True),
        ("t = (f32[8]{0}) tuple(p)\n ROOT u = (f32[8]{0}) tuple(p)", False),
        ("a = f32[16]{0} concatenate(p, q), dimensions={0}\n ROOT b = f32[8]{0} negate(p)", True),
        (
            "a = f32[16]{0} concatenate(p, q), dimensions={0}\n ROOT b = f32[16]{0} concatenate(p, q), dimensions={0}",
            False,
        ),
        (
            "a = f32[16]{0} concatenate(p, q), dimensions={0}\n b = f32[24]{0} concatenate(a, p), dimensions={0}\n"
            " ROOT c = f32[24]{0} concatenate(p, q, p), dimensions={0}",
            False,
        ),
        ("a = f32[4]{0} slice(p), slice={[0:4]}\n ROOT b = f32[4]{0} slice(p), slice={[4:8]}", True),
        (
            "a = f32[4]{0} slice(p), slice={[0:4]}\n b = f32[4]{0} slice(p), slice={[4:8]}\n"
            ' ROOT c = f32[4]{0} slice(p), slice={[0:4]}, metadata={op_name="c"}',
            False,
        ),
        (f"{PAIR} x = f32[8]{{0}} get-tuple-element(b), index=0\n ROOT y = f32[8]{{0}} negate(x)", True),
        (f"{PAIR} x = f32[8]{{0}} get-tuple-element(b), index=0\n ROOT y = (f32[8]{{0}}) tuple(x)", True),
        (
            f"{PAIR} x = f32[8]{{0}} get-tuple-element(b), index=0\n"
            " ROOT y = f32[8]{0} get-tuple-element(b), index=0",
            False,
        ),
        (
            f"{PAIR} x = f32[8]{{0}} get-tuple-element(b), index=0\n"
            " y = f32[8]{0} get-tuple-element(b), index=1\n ROOT z = (f32[8]{0}, f32[8]{0}) tuple(x, y)",
            False,
        ),
        (f"{EMPTY} x = () get-tuple-element(b), index=0\n ROOT y = () get-tuple-element(b), index=1", False),
        ("a = f32[8]{0} negate(p), control-predecessors={q}\n ROOT b = f32[8]{0} negate(p)", False),
    ],
)
def test_what_is_certain_to_differ_does(body: str, certain: bool):
    """That it is not certain says nothing."""
    computation = hlo_opt.parse(f"HloModule m\n\n{entry(body)}").entry
    assert all_differ(computation) == certain
    values = Numbering(computation.module, Table()).computation(computation, None).values
    assert not certain or len(set(values.values())) == len(values)


def test_attributes_count_in_any_order():
    dot = "ROOT d = f32[] dot(p, q), lhs_contracting_dims={0}, rhs_contracting_dims={0}"
    assert same(entry(dot), entry(dot.replace("lhs", "x").replace("rhs", "lhs").replace("x_", "rhs_")))


def test_constants_compare_by_value_and_elided_ones_never():
    assert same(
        "ENTRY e {\n ROOT c = f32[2]{0} constant({1, 2.0})\n}\n",
        "ENTRY e {\n ROOT c = f32[2]{0} constant({1.0, 2})\n}\n",
    )
    assert not same("ENTRY e {\n ROOT c = f32[] constant(0)\n}\n", "ENTRY e {\n ROOT c = f32[] constant(-0)\n}\n")
    elided = "ENTRY e {\n ROOT c = f32[2000]{0} constant({...})\n}\n"
    assert not same(elided, elided)


def test_layouts_count_where_bytes_are_read_as_they_lie():
    square = "ENTRY e {\n p = f32[2,3]{1,0} parameter(0)\n ROOT b = f32[6]{0} bitcast(p)\n}\n"
    assert not same(square, square.replace("{1,0}", "{0,1}"))
    assert same(square, square.replace("{1,0}", ""))
    plain = square.replace("bitcast", "reshape")
    assert same(plain, plain.replace("{1,0}", "{0,1}"))


def test_called_computations_count_by_what_they_hold():
    adds = "f {\n a = f32[] parameter(0)\n b = f32[] parameter(1)\n ROOT r = f32[] add(a, b)\n}\n\n"
    reduce = "z = f32[] constant(0)\n ROOT r = f32[] reduce(p, z), dimensions={0}, to_apply=f"
    assert same(adds + entry(reduce), adds.replace("add(a, b)", "add(b, a)") + entry(reduce))
    assert not same(adds + entry(reduce), adds.replace("add", "maximum") + entry(reduce))


@pytest.mark.parametrize("line", ["a = f32[2,3]{1,0} parameter(0)", "ROOT n = f32[2,3]{1,0} negate(a)"])
def test_layouts_of_what_is_called_count(line: str):
    called = "f {\n a = f32[2,3]{1,0} parameter(0)\n ROOT n = f32[2,3]{1,0} negate(a)\n}\n\n"
    call = entry('ROOT r = f32[8]{0} custom-call(p), custom_call_target="x", called_computations={f}')
    assert same(called + call, called + call)
    assert not same(called + call, called.replace(line, line.replace("{1,0}", "{0,1}")) + call)


def test_a_tuple_is_the_same_operand_whole_and_in_parts():
    loop = "f {\n a = (f32[8]{0}, f32[8]{0}) parameter(0)\n ROOT r = (f32[8]{0}, f32[8]{0}) tuple(a0, a1)\n}\n"
    loop = loop.replace(
        " ROOT",
        " a0 = f32[8]{0} get-tuple-element(a), index=0\n a1 = f32[8]{0} get-tuple-element(a), index=1\n ROOT",
    )
    never = "c {\n a = (f32[8]{0}, f32[8]{0}) parameter(0)\n ROOT r = pred[] constant(false)\n}\n\n"
    body = "t = (f32[8]{0}, f32[8]{0}) tuple(p, q)\n ROOT w = (f32[8]{0}, f32[8]{0}) while(t), condition=c, body=f"
    rebuilt = body.replace(
        "while(t)",
        "while(u)",
    ).replace(
        " ROOT",
        " x = f32[8]{0} get-tuple-element(t), index=0\n y = f32[8]{0} get-tuple-element(t), index=1\n"
        " u = (f32[8]{0}, f32[8]{0}) tuple(x, y)\n ROOT",
    )
    assert same(loop + never + entry(body), loop + never + entry(rebuilt))
    assert not same(loop + never + entry(body), loop + never + entry(rebuilt.replace("tuple(x, y)", "tuple(y, x)")))


def test_shapes_that_are_gone_leave_nothing_behind():
    """What is remembered by identity must not be taken for what is made later at the same place in memory."""
    table = Table()
    module = hlo_opt.parse("HloModule m\n\n" + entry("ROOT a = f32[8]{0} add(p, q)"))
    add = module.entry.root
    numbers = set()
    for size in range(1, 200):
        add.shape = array(ELEMENT_TYPES["f32"], size)
        numbers.add(Numbering(module, table).entry().root)
    assert len(numbers) == 199


def test_fusions_calls_and_tuples_are_looked_through():
    inner = (
        "f {\n a = f32[8]{0} parameter(0)\n b = f32[8]{0} parameter(1)\n n = f32[8]{0} negate(a)\n ROOT t = "
        "(f32[8]{0}, f32[8]{0}) tuple(n, b)\n}\n\n"
    )
    fused = inner + entry(
        "g = (f32[8]{0}, f32[8]{0}) fusion(p, q), kind=kLoop, calls=f\n x = f32[8]{0} get-tuple-element(g), index=0\n"
        " y = f32[8]{0} get-tuple-element(g), index=1\n ROOT a = f32[8]{0} add(x, y)"
    )
    plain = entry("n = f32[8]{0} negate(p)\n ROOT a = f32[8]{0} add(n, q)")
    assert same(fused, plain)
    assert same(fused.replace("fusion(p, q), kind=kLoop, calls=f", "call(p, q), to_apply=f"), plain)


def test_side_effects_count_by_number():
    once = (
        "ENTRY e {\n a = f32[] constant(0)\n b = f32[] constant(1)\n r = f32[8]{0} rng(a, b), "
        "distribution=rng_uniform\n ROOT n = f32[8]{0} add(r, r)\n}\n"
    )
    twice = once.replace(" ROOT n", " s = f32[8]{0} rng(a, b), distribution=rng_uniform\n ROOT n")
    assert not same(once, twice)


def test_what_only_waits_inside_a_loop_does_nothing_outside():
    """So that a loop that nobody needs may go, as `dce` has it."""
    loop = """c {
 t = (s32[]) parameter(0)
 i = s32[] get-tuple-element(t), index=0
 z = s32[] constant(3)
 ROOT r = pred[] compare(i, z), direction=LT
}

b {
 t = (s32[]) parameter(0)
 i = s32[] get-tuple-element(t), index=0
 z = s32[] constant(1)
 n = s32[] negate(i)
 s = s32[] add(i, z), control-predecessors={n}
 ROOT r = (s32[]) tuple(s)
}

"""
    dead = loop + entry(
        "z = s32[] constant(0)\n t = (s32[]) tuple(z)\n w = (s32[]) while(t), condition=c, body=b\n ROOT n = f32[8]{0} "
        "negate(p)"
    )
    assert same(dead, entry("ROOT n = f32[8]{0} negate(p)"))
    live = dead.replace("ROOT n", "n").replace(
        "negate(p)\n}", "negate(p)\n ROOT g = s32[] get-tuple-element(w), index=0\n}"
    )
    assert same(live, live) and not same(live, live.replace(", control-predecessors={n}", ""))


@pytest.mark.parametrize("way", ["here", "in a call", "in a loop"])
def test_a_loop_that_does_something_may_not_go(way: str):
    draw = 'd = s32[] custom-call(i), custom_call_target="x", custom_call_has_side_effect=true'
    line = {
        "here": draw,
        "in a call": "d = s32[] call(i), to_apply=f",
        "in a loop": "d = s32[] while(i), condition=c, body=f",
    }[way]
    loop = "c { i = s32[] parameter(0) z = s32[] constant(3) ROOT r = pred[] compare(i, z), direction=LT }\n"
    loop += f"f {{ i = s32[] parameter(0) {draw} ROOT n = s32[] negate(i) }}\n"
    loop += f"b {{ i = s32[] parameter(0) {line} ROOT n = s32[] negate(i) }}\n\n"
    dead = loop + entry(
        "z = s32[] constant(0)\n w = s32[] while(z), condition=c, body=b\n ROOT n = f32[8]{0} negate(p)"
    )
    assert same(dead, dead) and not same(dead, entry("ROOT n = f32[8]{0} negate(p)"))


def test_what_happens_inside_a_call_is_waited_for():
    """The call gives what the negation gives, and does something else besides."""
    called = (
        'f {\n a = f32[8]{0} parameter(0)\n d = f32[8]{0} custom-call(a), custom_call_target="x", '
        "custom_call_has_side_effect=true\n ROOT b = f32[8]{0} negate(a)\n}\n\n"
    )
    lines = (
        "x = f32[8]{0} call(p), to_apply=f\n n = f32[8]{0} negate(p)\n y = f32[8]{0} sine(q), "
        "control-predecessors={x}\n s = f32[8]{0} add(x, n)\n ROOT r = f32[8]{0} add(s, y)"
    )
    after_call = called + entry(lines)
    assert same(after_call, after_call)
    assert not same(after_call, after_call.replace("predecessors={x}", "predecessors={n}"))


def test_what_others_imply_need_not_be_waited_for():
    """`b` comes after `a` whatever `d`, which is numbered last, is."""
    lines = (
        "a = f32[8]{0} sine(p)\n b = f32[8]{0} cosine(a)\n d = f32[8]{0} exponential(q)\n c = f32[8]{0} tan(b), "
        "control-predecessors={a, d}\n ROOT r = f32[8]{0} add(c, d)"
    )
    both = entry(lines)
    assert same(both, both.replace("{a, d}", "{d}"))
    assert not same(both, both.replace("{a, d}", "{a}"))


def test_nested_calls_do_not_recurse_in_python():
    text = "c0 {\n ROOT p = f32[8]{0} parameter(0)\n}\n\n"
    for n in range(1, 3000):
        text += f"c{n} {{\n p = f32[8]{{0}} parameter(0)\n ROOT r = f32[8]{{0}} call(p), to_apply=c{n - 1}\n}}\n\n"
    text += "ENTRY e {\n p = f32[8]{0} parameter(0)\n ROOT r = f32[8]{0} call(p), to_apply=c2999\n}\n"
    assert same(text, "ENTRY e {\n ROOT p = f32[8]{0} parameter(0)\n}\n")


def test_exponential_calls_end(monkeypatch: pytest.MonkeyPatch):
    text = "c0 {\n p = f32[8]{0} parameter(0)\n ROOT r = f32[8]{0} negate(p)\n}\n\n"
    for n in range(1, 40):
        text += f"c{n} {{\n p = f32[8]{{0}} parameter(0)\n a = f32[8]{{0}} call(p), to_apply=c{n - 1}\n ROOT b = f32[8]{{0}} call(a), to_apply=c{n - 1}\n}}\n\n"
    text += "ENTRY e {\n p = f32[8]{0} parameter(0)\n ROOT r = f32[8]{0} call(p), to_apply=c39\n}\n"
    module = hlo_opt.parse("HloModule m\n\n" + text)
    monkeypatch.setattr(numbering, "WORK_LIMIT", 10_000)
    with pytest.raises(VerifyError, match="expand to more than"):
        Numbering(module, Table()).entry()
    monkeypatch.setattr("hlo_opt.analysis.graph.inlining.GROWTH_LIMIT", 10_000)
    inline(module, is_plain_call)
    assert sum(len(c.instructions) for c in module.computations) < 30_000


def test_orders_that_are_too_far_apart_to_be_compared_count(monkeypatch: pytest.MonkeyPatch):
    chain = entry(
        "a = f32[8]{0} sine(p)\n b = f32[8]{0} cosine(a)\n c = f32[8]{0} tan(b), control-predecessors={a}\n ROOT r = "
        "f32[8]{0} add(c, q)"
    )
    free = chain.replace(", control-predecessors={a}", "")
    assert same(chain, free)
    monkeypatch.setattr(numbering, "_REACH_LIMIT", 2)
    assert not same(chain, free)
    monkeypatch.setattr(numbering, "_REACH_LIMIT", 3)
    assert same(chain, free)


def test_each_value_between_is_looked_at_once(monkeypatch: pytest.MonkeyPatch):
    lines = "".join(f"a{k + 1} = f32[8]{{0}} add(a{k}, a{k})\n " for k in range(30))
    chain = entry(f"a0 = f32[8]{{0}} sine(p)\n {lines}ROOT r = f32[8]{{0}} tan(a30), control-predecessors={{a0}}")
    monkeypatch.setattr(numbering, "_REACH_LIMIT", 40)
    assert same(chain, chain.replace(", control-predecessors={a0}", ""))


def test_what_is_visited_is_counted():
    """Bodies once for what they are given; those that draw each time."""
    inner = "f {\n a = f32[8]{0} parameter(0)\n z = f32[] constant(0)\n LINE\n ROOT b = f32[8]{0} negate(a)\n}\n\n"
    calls = entry(
        "x = f32[8]{0} call(p), to_apply=f\n y = f32[8]{0} call(p), to_apply=f\n w = f32[8]{0} call(q), to_apply=f\n h "
        "= f32[8]{0} add(x, y)\n ROOT r = f32[8]{0} add(h, w)"
    )
    counts = []
    for line in ("", "d = f32[] rng(z, z), distribution=rng_uniform"):
        one = Numbering(hlo_opt.parse("HloModule m\n\n" + inner.replace("LINE", line) + calls), Table())
        one.entry()
        counts.append(one.visited)
    assert counts == [7 + 2 * 3, 7 + 3 * 4]


def test_a_computation_that_is_not_looked_through_is_visited_once():
    """Also one that draws: what happens in it is counted by what calls it."""
    branch = (
        "f {\n a = f32[8]{0} parameter(0)\n z = f32[] constant(0)\n d = f32[] rng(z, z), distribution=rng_uniform\n "
        "ROOT b = f32[8]{0} negate(a)\n}\n\n"
    )
    chosen = (
        "c = pred[] constant(true)\n x = f32[8]{0} conditional(c, p, q), true_computation=f, false_computation=f\n "
        "ROOT r = f32[8]{0} negate(x)"
    )
    one = Numbering(hlo_opt.parse("HloModule m\n\n" + branch + entry(chosen)), Table())
    one.entry()
    assert one.visited == 5 + 4


def test_as_many_instructions_are_visited_as_there_may_be(monkeypatch: pytest.MonkeyPatch):
    module = hlo_opt.parse("HloModule m\n\n" + entry("ROOT r = f32[8]{0} add(p, q)"))
    monkeypatch.setattr(numbering, "WORK_LIMIT", 3)
    Numbering(module, Table()).entry()
    monkeypatch.setattr(numbering, "WORK_LIMIT", 2)
    with pytest.raises(VerifyError, match="expand to more than 2 instructions"):
        Numbering(module, Table()).entry()


def test_values_are_kept_where_a_computation_stands_on_its_own_parameters():
    text = "f { a = f32[8]{0} parameter(0) ROOT r = f32[8]{0} negate(a) }\n\n"
    module = hlo_opt.parse("HloModule m\n\n" + text + entry("ROOT c = f32[8]{0} call(p), to_apply=f"))
    one = Numbering(module, Table())
    outer = one.entry()
    body = next(iter(module.computations))
    assert set(outer.values) == set(module.entry.instructions)
    inlined = one.computation(body, (outer.values[module.entry.parameters[0]],))
    assert inlined.root == outer.root and not inlined.values
    assert set(one.computation(body, None).values) == set(body.instructions)


def test_heads_are_numbers_of_what_values_are_but_for_their_operands():
    table = Table()
    module = hlo_opt.parse(
        "HloModule m\n\n"
        + entry(
            "z = f32[] constant(0)\n a = f32[8]{0} add(p, q)\n b = f32[8]{0} add(a, q)\n c = f32[8]{0} subtract(a, "
            "b)\n d = f32[8]{0} abs(c), control-predecessors={z}\n"
            " e = f32[8]{0} rng(z, z), distribution=rng_uniform, control-predecessors={d}\n f = f32[8]{0} add(d, e)\n "
            "ROOT r = f32[8]{0} add(c, f)"
        )
    )
    values = Numbering(module, table).entry().values
    number = {i.name: v for i, v in values.items() if isinstance(v, int)}
    heads = {name: table.head(n) for name, n in number.items()}
    assert heads["a"] == heads["b"] == heads["f"] == heads["r"]
    assert len({heads[name] for name in "acdez"}) == 5
    assert all(isinstance(head, int) and head < len(number) for head in heads.values())
    assert [name for name in "acde" if table.commutes(number[name])] == ["a"]
    assert table.only_waits(number["d"]) and not table.only_waits(number["e"])


def test_large_constants_compare_by_text():
    def constant(count: int, first: str) -> str:
        return f"ENTRY e {{\n ROOT c = f32[{count}]{{0}} constant({{{', '.join([first] + ['2'] * (count - 1))}}})\n}}\n"

    assert same(constant(1024, "1"), constant(1024, "1.0"))
    assert not same(constant(1025, "1"), constant(1025, "1.0"))
    assert same(constant(1025, "1"), constant(1025, "1"))


def test_large_constants_that_were_never_written_compare_by_value():
    def constant(last: float) -> Numbered:
        module = hlo_opt.parse("HloModule m\n\nENTRY e {\n ROOT c = f32[2000]{0} constant({...})\n}\n")
        values = np.zeros(2000, np.float32)
        values[-1] = last
        module.entry.root.literal = Literal(module.entry.root.shape, value=values)
        return Numbering(module, table).entry()

    table = Table()
    assert constant(1).root == constant(1).root != constant(2).root


def test_things_that_are_alike_have_one_small_number():
    """What is remembered by identity must not be taken for what is made later at the same place in memory."""
    table = Table()
    f32 = ELEMENT_TYPES["f32"]
    assert [table.bare.number(array(f32, size)) for size in range(200)] == list(range(200))
    shapes = array(f32, 2, 3), array(ELEMENT_TYPES["s32"], 2), Shape(f32, (2, 3), Layout((0, 1))), Shape(f32, (2, 3))
    other = Table()
    assert [other.laid_out.number(s) for s in shapes] == [0, 1, 2, 0]
    assert [other.bare.number(s) for s in shapes] == [0, 1, 0, 0]


def test_what_holds_no_side_effects_needs_no_search():
    """Not even where the budget of the search is spent."""
    body = "c { a = s32[] parameter(0) k = s32[] constant(5) ROOT l = pred[] compare(a, k), direction=LT }\n"
    body += "b { a = s32[] parameter(0) k = s32[] constant(1) ROOT s = s32[] add(a, k) }\n\n"
    text = body + "ENTRY e {\n i = s32[] constant(0)\n ROOT w = s32[] while(i), condition=c, body=b\n}\n"
    table = Table(budget=VisitBudget(0))
    one, other = (Numbering(hlo_opt.parse(f"HloModule m\n\n{text}"), table).entry() for _ in range(2))
    found = agree(table, one, other)
    assert found.pairs == {} and not found.is_open
    third = Numbering(hlo_opt.parse(f"HloModule m\n\n{text.replace('LT', 'LE')}"), table).entry()
    found = agree(table, one, third)
    assert found.pairs is None and not found.is_open
