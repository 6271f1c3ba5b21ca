"""The proof lets right rewrites through and catches wrong ones."""

from collections.abc import Callable

import pytest

import hlo_opt
import hlo_opt.ir
from hlo_opt.diag import ProofError
from hlo_opt.fusion.proof import prove_same_graph
from hlo_opt.ir import Attribute, Instruction, Module, edit

TEXT = """\
HloModule m, entry_computation_layout={(f32[8]{0}, f32[8]{0})->(f32[8]{0}, f32[8]{0})}

ENTRY e {
  p = f32[8]{0} parameter(0)
  q = f32[8]{0} parameter(1)
  n = f32[8]{0} negate(p)
  s = f32[8]{0} subtract(n, q)
  x = f32[8]{0} exponential(s)
  c = pred[8]{0} compare(x, q), direction=LT
  d = f32[8]{0} select(c, x, q)
  low = f32[] constant(0)
  r = f32[8]{0} rng(low, low), distribution=rng_uniform
  y = f32[8]{0} add(d, r)
  ROOT t = (f32[8]{0}, f32[8]{0}) tuple(x, y)
}
"""


def by_name(module: Module) -> dict[str, Instruction]:
    return {i.name: i for i in module.entry.instructions}


def swap_operands(i: dict[str, Instruction]) -> None:
    edit.set_operands(i["s"], [i["q"], i["n"]])


def other_value(i: dict[str, Instruction]) -> None:
    edit.replace_operand(i["d"], 1, i["s"])


def other_attribute(i: dict[str, Instruction]) -> None:
    edit.set_attribute(i["c"], "direction", Attribute.of("LE"))


def swapped_outputs(i: dict[str, Instruction]) -> None:
    edit.set_operands(i["t"], [i["y"], i["x"]])


def effect_twice(i: dict[str, Instruction]) -> None:
    edit.clone_into(i["r"].computation, i["r"], i["r"].operands)


def effect_lost(i: dict[str, Instruction]) -> None:
    edit.replace_all_uses(i["y"], i["d"])
    edit.remove(i["y"])
    edit.remove(i["r"])


def waits(i: dict[str, Instruction]) -> None:
    i["r"].control_predecessors = [i["x"]]


@pytest.mark.parametrize(
    ("break_it", "message"),
    [
        (swap_operands, "output 0 .* s = "),
        (other_value, "output 1 .*: d = "),
        (other_attribute, "output 1 .* c = "),
        (swapped_outputs, "output 0"),
        (effect_twice, "side effects differ: added r"),
        (effect_lost, "output 1"),
        (waits, "r = .* waits for other values"),
    ],
)
def test_a_wrong_rewrite_is_caught(break_it: Callable[[dict[str, Instruction]], None], message: str):
    before = hlo_opt.parse(TEXT)
    after = edit.clone_module(before)
    prove_same_graph(before, after)
    break_it(by_name(after))
    with pytest.raises(ProofError, match=message):
        prove_same_graph(before, after)


def test_the_smallest_difference_is_named():
    before = hlo_opt.parse(TEXT)
    after = edit.clone_module(before)
    swap_operands(by_name(after))
    with pytest.raises(ProofError) as caught:
        prove_same_graph(before, after)
    assert "s = f32[8]{0} subtract(n, q) became s = f32[8]{0} subtract(q, n)" in str(caught.value)


def test_the_header_counts():
    before = hlo_opt.parse(TEXT)
    after = edit.clone_module(before)
    del after.attributes["entry_computation_layout"]
    with pytest.raises(ProofError, match="entry_computation_layout"):
        prove_same_graph(before, after)


def test_a_fusion_with_a_wrong_parameter_shape_is_caught():
    fused, _ = hlo_opt.fuse(hlo_opt.parse(TEXT))
    before = hlo_opt.parse(TEXT)
    fusion = next(i for i in fused.entry.instructions if i.opcode == "fusion")
    parameter = fusion.called_by("calls").parameters[0]
    parameter.shape = hlo_opt.ir.array(hlo_opt.ir.ELEMENT_TYPES["f32"], 2, 4)
    with pytest.raises(ProofError):
        prove_same_graph(before, fused)


def test_a_pass_that_lies_is_caught(monkeypatch: pytest.MonkeyPatch):
    from hlo_opt.passes.dce import DeadCodeElimination

    def lie(self: object, module: Module, context: object) -> bool:
        i = by_name(module)
        edit.set_operands(i["s"], list(reversed(i["s"].operands)))
        return True

    monkeypatch.setattr(DeadCodeElimination, "run", lie)
    with pytest.raises(ProofError):
        hlo_opt.fuse(hlo_opt.parse(TEXT), passes="dce", simplify="never")


DRAWS = """\
HloModule m

ENTRY e {
  low = f32[] constant(0)
  high = f32[] constant(1)
  a = f32[4]{0} rng(low, high), distribution=rng_uniform
  b = f32[4]{0} rng(low, high), distribution=rng_uniform
  x = f32[4]{0} negate(a)
  y = f32[4]{0} negate(b)
  ROOT r = f32[4]{0} subtract(x, y)
}
"""


def test_two_draws_are_two_values():
    """With one number for both, their difference is zero, and that was proved."""
    fused, _ = hlo_opt.fuse(hlo_opt.parse(DRAWS))
    left, right = next(i for c in fused.computations for i in c.instructions if i.opcode == "subtract").operands
    assert left is not right
    with pytest.raises(ProofError, match="equal side effects"):
        prove_same_graph(hlo_opt.parse(DRAWS), hlo_opt.parse(DRAWS.replace("negate(b)", "negate(a)")))
    prove_same_graph(hlo_opt.parse(DRAWS), hlo_opt.parse(DRAWS.replace("(x, y)", "(y, x)")))


def refusal(before: str, after: str) -> str:
    """What the proof says."""
    with pytest.raises(ProofError) as caught:
        prove_same_graph(hlo_opt.parse(before), hlo_opt.parse(after))
    return str(caught.value).removeprefix("HLO600 ")


def lines(*body: str) -> str:
    """A module of p, q and z = 0."""
    given = ("p = f32[4]{0} parameter(0)", "q = f32[4]{0} parameter(1)", "z = f32[] constant(0)")
    return "HloModule m\n\nENTRY e {\n" + "".join(f"  {line}\n" for line in (*given, *body)) + "}\n"


DRAW = "d = f32[4]{0} rng(z, z), distribution=rng_uniform"
PARTS = 'c = (f32[4]{0}, f32[4]{0}) custom-call(p), custom_call_target="f"'
ROOT = "ROOT r = f32[4]{0} negate(p)"


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        (lines(DRAW, ROOT), lines(ROOT), "side effects differ: lost d = f32[4]{0} rng(z, z), distribution=rng_uniform"),
        (
            lines(ROOT),
            lines(DRAW, ROOT),
            "side effects differ: added d = f32[4]{0} rng(z, z), distribution=rng_uniform",
        ),
        (
            lines(DRAW, DRAW.replace("d =", "e ="), ROOT),
            lines(DRAW, ROOT),
            "side effects differ: lost d = f32[4]{0} rng(z, z), distribution=rng_uniform",
        ),
        (
            lines(DRAW, "e = f32[4]{0} abs(p), control-predecessors={q}", ROOT),
            lines(DRAW, ROOT),
            "control dependencies differ: lost e = f32[4]{0} abs(p)",
        ),
        (
            lines(DRAW, ROOT),
            lines(DRAW, "e = f32[4]{0} abs(p), control-predecessors={q}", ROOT),
            "control dependencies differ: added e = f32[4]{0} abs(p)",
        ),
        (
            lines(ROOT),
            lines("n = f32[4]{0} abs(p)", "ROOT r = f32[4]{0} negate(n)"),
            "output 0 of the result is another value: r = f32[4]{0} negate(p) became r = f32[4]{0} negate(n)",
        ),
        (
            lines("s = f32[4]{0} sine(p)", "ROOT r = f32[4]{0} negate(s)"),
            lines("s = f32[4]{0} sine(q)", "ROOT r = f32[4]{0} negate(s)"),
            "output 0 of the result is another value: p = f32[4]{0} parameter(0) became q = f32[4]{0} parameter(1)",
        ),
        (
            lines("s = f32[4]{0} subtract(p, q)", "ROOT r = f32[4]{0} negate(s)"),
            lines("s = f32[4]{0} subtract(q, p)", "ROOT r = f32[4]{0} negate(s)"),
            "output 0 of the result is another value: s = f32[4]{0} subtract(p, q) became s = f32[4]{0} subtract(q, p)",
        ),
        (
            lines(DRAW, "ROOT t = (f32[4]{0}, f32[4]{0}) tuple(p, d)"),
            lines(DRAW, "ROOT t = (f32[4]{0}, f32[4]{0}) tuple(p, q)"),
            "output 1 of the result is another value: d = f32[4]{0} rng(z, z), distribution=rng_uniform became q = "
            "f32[4]{0} parameter(1)",
        ),
        (
            lines("ROOT r = pred[4]{0} compare(p, q), direction=LT"),
            lines("ROOT r = pred[4]{0} compare(p, q), direction=LE"),
            "output 0 of the result is another value: r = pred[4]{0} compare(p, q), direction=LT became r = pred[4]{0} "
            "compare(p, q), direction=LE",
        ),
        (
            lines("c = f32[] constant(1)", "ROOT r = f32[] negate(c)"),
            lines("c = f32[] constant(2)", "ROOT r = f32[] negate(c)"),
            "output 0 of the result is another value: c = f32[] constant(1) became c = f32[] constant(2)",
        ),
        (
            lines("s = f32[4]{0} sine(p)", 'ROOT r = f32[4]{0} custom-call(s), custom_call_target="f"'),
            lines("s = f32[4]{0} sine(q)", 'ROOT r = f32[4]{0} custom-call(s, q), custom_call_target="f"'),
            'output 0 of the result is another value: r = f32[4]{0} custom-call(s), custom_call_target="f" became '
            'r = f32[4]{0} custom-call(s, q), custom_call_target="f"',
        ),
        (
            lines('ROOT r = f32[4]{0} custom-call(p), custom_call_target="f", backend_config="x"'),
            lines('ROOT r = f32[4]{0} custom-call(p), custom_call_target="f", backend_config="y"'),
            'output 0 of the result is another value: r = f32[4]{0} custom-call(p), custom_call_target="f" is '
            "configured in another way, or calls or "
            "holds something else",
        ),
        (
            lines(
                "a = f32[4]{0} abs(p), control-predecessors={q}",
                "ROOT r = f32[4]{0} negate(a), control-predecessors={p}",
            ),
            lines(
                "a = f32[4]{0} abs(p), control-predecessors={q}", "ROOT r = f32[4]{0} sine(a), control-predecessors={p}"
            ),
            "output 0 of the result is another value: r = f32[4]{0} negate(a) became r = f32[4]{0} sine(a)",
        ),
        (
            lines(
                "t = (f32[4]{0}, f32[4]{0}) tuple(p, q)", 'ROOT r = f32[4]{0} custom-call(t), custom_call_target="f"'
            ),
            lines(
                "t = (f32[4]{0}, f32[4]{0}) tuple(q, q)", 'ROOT r = f32[4]{0} custom-call(t), custom_call_target="f"'
            ),
            "output 0 of the result is another value: p = f32[4]{0} parameter(0) became q = f32[4]{0} parameter(1)",
        ),
        (
            lines(
                "t = (f32[4]{0}, f32[4]{0}) tuple(p, q)", 'ROOT r = f32[4]{0} custom-call(t), custom_call_target="f"'
            ),
            lines(
                "t = (f32[4]{0}, f32[4]{0}) tuple(q, p)", 'ROOT r = f32[4]{0} custom-call(t), custom_call_target="f"'
            ),
            "output 0 of the result is another value: (p = f32[4]{0} parameter(0), q = f32[4]{0} parameter(1)) became "
            "(q = f32[4]{0} parameter(1), p = f32[4]{0} parameter(0))",
        ),
        (
            lines(PARTS, "ROOT r = f32[4]{0} get-tuple-element(c), index=0"),
            lines(PARTS, "ROOT r = f32[4]{0} get-tuple-element(c), index=1"),
            "output 0 of the result is another value: element 0 of c = (f32[4]{0}, f32[4]{0}) custom-call(p), "
            'custom_call_target="f" became '
            'element 1 of c = (f32[4]{0}, f32[4]{0}) custom-call(p), custom_call_target="f"',
        ),
        (
            lines(PARTS, "ROOT r = f32[4]{0} get-tuple-element(c), index=0"),
            lines(PARTS.replace("(p)", "(q)"), "ROOT r = f32[4]{0} get-tuple-element(c), index=0"),
            "output 0 of the result is another value: p = f32[4]{0} parameter(0) became q = f32[4]{0} parameter(1)",
        ),
        (
            lines("t = (f32[4]{0}) tuple(p)", 'ROOT r = f32[4]{0} custom-call(t), custom_call_target="f"'),
            lines('ROOT r = f32[4]{0} custom-call(p), custom_call_target="f"'),
            'output 0 of the result is another value: r = f32[4]{0} custom-call(t), custom_call_target="f" became '
            'r = f32[4]{0} custom-call(p), custom_call_target="f"',
        ),
        (
            lines(DRAW, "e = f32[4]{0} rng(z, z), distribution=rng_uniform", "ROOT r = f32[4]{0} subtract(d, e)"),
            lines(DRAW, "e = f32[4]{0} rng(z, z), distribution=rng_uniform", "ROOT r = f32[4]{0} subtract(d, d)"),
            "equal side effects are merged or kept apart in another way than in the original",
        ),
    ],
)
def test_a_refusal_names_what_differs(before: str, after: str, message: str):
    assert refusal(before, after) == message


def test_a_refusal_names_the_parameter_of_the_entry():
    """Not that of a reducer, which has the same number and was read before it."""
    text = """\
HloModule m

add { a = f32[] parameter(0) b = f32[] parameter(1) ROOT s = f32[] add(a, b) }

ENTRY e {
  p = f32[4]{0} parameter(0)
  z = f32[] constant(0)
  t = f32[] reduce(p, z), dimensions={0}, to_apply=add
  w = f32[4]{0} broadcast(t), dimensions={}
  q = f32[4]{0} parameter(1)
  ROOT r = f32[4]{0} subtract(w, q)
}
"""
    assert refusal(text, text.replace("(w, q)", "(w, p)")).endswith(
        "q = f32[4]{0} parameter(1) became p = f32[4]{0} parameter(0)"
    )


def test_a_refusal_shows_so_much_of_a_constant():
    def text(last: int) -> str:
        numbers = ", ".join(["0"] * 200 + [str(last)])
        return f"HloModule m\n\nENTRY e {{\n  ROOT r = s32[201]{{0}} constant({{{numbers}}})\n}}\n"

    shown = text(1).split("ROOT ")[1][:300]
    assert shown.startswith("r = s32[201]{0} constant({0, 0, ")
    assert refusal(text(1), text(2)) == (
        f"output 0 of the result is another value: {shown}.. is configured in another way, or calls or holds something "
        f"else"
    )
    short = "HloModule m\n\nENTRY e {\n  ROOT r = f32[] constant(0.5)\n}\n"
    padded = short.replace("r =", f"r{'r' * (300 - len('r = f32[] constant(0.5)'))} =")
    assert ".." not in refusal(padded, padded.replace("0.5", "0.25")).split(" became ")[0]


def with_operands(name: str, *operands: str) -> Callable[[Module], None]:
    """A pass gone wrong: other operands, and the shape as it was."""

    def change(module: Module) -> None:
        known = by_name(module)
        edit.set_operands(known[name], [known[o] for o in operands])

    return change


PAIR = lines("t = (f32[4]{0}, f32[4]{0}) tuple(p, q)", "ROOT r = (f32[4]{0}, f32[4]{0}) tuple(p, q)")


@pytest.mark.parametrize("effect", ["", f"  {DRAW}\n"])
@pytest.mark.parametrize(
    "operands",
    [("p",), ("p", "q", "q"), ("t", "q"), ("p", "t")],
    ids=["one less", "one more", "a tuple first", "a tuple last"],
)
def test_a_result_that_holds_something_else_than_its_shape_says_is_refused(operands: tuple[str, ...], effect: str):
    before = hlo_opt.parse(PAIR.replace("  t =", f"{effect}  t ="))
    after = edit.clone_module(before)
    with_operands("r", *operands)(after)
    for one, other in ((before, after), (after, before)):
        with pytest.raises(ProofError, match="the result is another tuple than the original's"):
            prove_same_graph(one, other)


@pytest.mark.parametrize("operands", [("p",), ("p", "q", "q")])
def test_what_nobody_takes_out_of_a_tuple_must_fit_its_shape(operands: tuple[str, ...]):
    body = lines("t = (f32[4]{0}, f32[4]{0}) tuple(p, q)", "g = f32[4]{0} get-tuple-element(t), index=0", ROOT)
    before = hlo_opt.parse(body)
    after = edit.clone_module(before)
    with_operands("t", *operands)(after)
    with pytest.raises(ProofError, match="t takes or gives other shapes or layouts than what it is made of"):
        prove_same_graph(before, after)


def test_a_search_that_ends_too_soon_says_so(monkeypatch: pytest.MonkeyPatch):
    from rewrites_effects import SHUFFLED, SIX

    from hlo_opt.analysis.graph import occurrences

    monkeypatch.setattr(occurrences.VisitBudget, "__init__", lambda self: setattr(self, "left", 5))
    assert refusal(SIX, SHUFFLED) == "too many equal side effects to find out which is which"


HEADED = (
    "HloModule m, num_partitions=2\n\nENTRY e {\n  p = f32[4]{0} parameter(0), sharding={replicated}\n  q = f32[4]{0} "
    "parameter(1)\n  ROOT r = f32[4]{0} negate(p)\n}\n"
)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("num_partitions=2", "num_partitions=2, replica_count=1", "the module header changed: replica_count"),
        (", num_partitions=2", ", replica_count=2", "the module header changed: num_partitions, replica_count"),
        ("num_partitions=2", "num_partitions=4", "the module header changed: num_partitions"),
        ("  q = f32[4]{0} parameter(1)\n", "", "the entry's parameters changed"),
        (", sharding={replicated}", "", "the entry's parameter 0 is cut or copied in another way"),
        (
            "parameter(1)",
            "parameter(1), parameter_replication={true}",
            "the entry's parameter 1 is cut or copied in another way",
        ),
        ("r = f32[4]{0} negate", "r = f32[4]{0:S(5)} negate", "the entry's result is f32[4]{0:S(5)}, not f32[4]{0}"),
    ],
)
def test_a_refusal_names_what_the_caller_sees(old: str, new: str, message: str):
    assert refusal(HEADED, HEADED.replace(old, new)) == message


def test_a_refusal_names_what_takes_another_shape():
    calls = (
        "f { a = f32[4]{0} parameter(0) ROOT r = f32[4]{0} negate(a) }\n\nENTRY e {\n  p = f32[4]{0} parameter(0)\n  "
        "ROOT c = f32[4]{0} call(p), to_apply=f\n}\n"
    )
    before = f"HloModule m\n\n{calls}"
    after = before.replace("a = f32[4]{0}", "a = f32[4]{0:S(5)}")
    assert refusal(before, after) == "c takes or gives other shapes or layouts than its computation f"
    prove_same_graph(hlo_opt.parse(after), hlo_opt.parse(after))
    tuples = lines(
        "t = (f32[4]{0}) tuple(p)", "g = f32[4]{0} get-tuple-element(t), index=0", "ROOT r = f32[4]{0} negate(g)"
    )
    other = tuples.replace("g = f32[4]{0}", "g = f32[4]{0:S(5)}")
    assert refusal(tuples, other) == "g takes or gives other shapes or layouts than what it is made of"


def test_a_tuple_that_says_it_is_none_is_refused():
    before = hlo_opt.parse(PAIR)
    after = edit.clone_module(before)
    by_name(after)["t"].shape = hlo_opt.ir.array(hlo_opt.ir.ELEMENT_TYPES["f32"], 4)
    with pytest.raises(ProofError, match="t takes or gives other shapes"):
        prove_same_graph(before, after)


def test_a_body_with_one_number_for_two_parameters_is_refused() -> None:
    text = """\
HloModule m

b { x = f32[8]{0} parameter(0) y = f32[8]{0} parameter(1) ROOT r = f32[8]{0} add(x, y) }

ENTRY e { p = f32[8]{0} parameter(0) ROOT f = f32[8]{0} fusion(p, p), kind=kLoop, calls=b }
"""
    before, after = hlo_opt.parse(text), hlo_opt.parse(text)
    next(i for c in after.computations for i in c.instructions if i.name == "y").parameter_number = 0
    with pytest.raises(ProofError, match="f takes or gives other"):
        prove_same_graph(before, after)
