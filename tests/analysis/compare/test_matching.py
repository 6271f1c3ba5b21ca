"""Which operation of one module is which of another."""

from __future__ import annotations

import pytest
from compared_modules import LOOP

import hlo_opt
from hlo_opt.analysis.graph.compare.matching import match
from hlo_opt.ir import Module
from scripts.diff_programs import program, retold


def partners(old: str | Module, new: str | Module) -> dict[str, str]:
    """The names of what is matched."""
    one, other = (hlo_opt.parse(m) if isinstance(m, str) else m for m in (old, new))
    found = match(one, other)
    return {s.instruction.name: s.partner.instruction.name for s in found.old.sites() if s.partner is not None}


@pytest.mark.parametrize("seed", range(3))
def test_what_is_told_again_is_matched_whole(seed):
    module = hlo_opt.parse(program(300, seed))
    renamed: dict[str, str] = {}
    new = hlo_opt.parse(retold(module, seed, renamed))
    found = match(module, new)
    sites = list(found.old.sites())
    assert all(s.partner is not None and s.forward == s.partner.forward for s in sites)
    main = [s for s in found.old.entry.sites if not s.callers]
    distinct = [s for s in main if sum(t.forward == s.forward for t in found.old.entry.sites) == 1]
    assert len(distinct) > 100
    assert all(s.partner and s.partner.instruction.name == renamed[s.instruction.name] for s in distinct)


CHAIN = """HloModule m

ENTRY e {
  p = f32[8]{0} parameter(0)
  a = f32[8]{0} tanh(p)
  b = f32[8]{0} sine(a)
  c = f32[8]{0} abs(b)
  ROOT r = f32[8]{0} negate(c)
}
"""


@pytest.mark.parametrize(
    ("old", "new", "wanted"),
    [
        ("sine(a)", "cosine(a)", {"b": "b", "c": "c", "a": "a"}),
        ("b = f32[8]{0} sine(a)", "x = f32[8]{0} exponential(a)\n  b = f32[8]{0} sine(x)", {"b": "b", "c": "c"}),
        ("abs(b)", "abs(a)", {"b": "b", "c": "c"}),
        (
            "p = f32[8]{0} parameter(0)",
            "n = f32[8]{0} parameter(0)\n  p = f32[8]{0} parameter(1)",
            {"p": "p", "a": "a"},
        ),
    ],
)
def test_one_change_leaves_the_rest_matched(old, new, wanted):
    found = partners(CHAIN, CHAIN.replace(old, new))
    assert {name: found.get(name) for name in wanted} == wanted


def test_a_type_that_is_another_one_in_the_middle():
    narrow = CHAIN.replace(
        "b = f32[8]{0} sine(a)",
        "k = bf16[8]{0} convert(a)\n  w = bf16[8]{0} sine(k)\n  b = f32[8]{0} convert(w)",
    )
    found = partners(CHAIN, narrow)
    assert found["b"] == "w" and found["c"] == "c"


def test_computations_are_matched_through_what_calls_them():
    found = partners(LOOP, LOOP.replace("tanh(x)", "sine(x)").replace("round", "region_7").replace("going", "region_8"))
    assert found["y"] == "y" and found["j"] == "j" and found["l"] == "l" and found["w"] == "w"


def test_what_left_a_loop_has_moved():
    old = LOOP.replace("tanh(x)", "tanh(x)\n  k = f32[8]{0} sqrt(x)\n  u = f32[8]{0} add(y, k)").replace(
        "tuple(j, y)", "tuple(j, u)"
    )
    new = LOOP.replace("exponential(p)", "exponential(p)\n  q = f32[8]{0} sqrt(v)").replace(
        "tuple(z, v)", "tuple(z, q)"
    )
    found = match(hlo_opt.parse(old), hlo_opt.parse(new))
    assert [(a.instruction.name, b.instruction.name) for a, b in found.moved] == [("k", "q")]


def test_many_equal_branches_are_told_apart_by_what_they_read():
    lines = [f"  p{n} = f32[8]{{0}} parameter({n})\n  t{n} = f32[8]{{0}} tanh(p{n})" for n in range(40)]
    sums = [
        "  sum0 = f32[8]{0} add(t0, t1)",
        *(f"  sum{n - 1} = f32[8]{{0}} add(sum{n - 2}, t{n})" for n in range(2, 40)),
    ]
    text = "HloModule m\n\nENTRY e {\n" + "\n".join([*lines, *sums, "  ROOT r = f32[8]{0} negate(sum38)"]) + "\n}\n"
    found = partners(text, text.replace("tanh(p17)", "abs(p17)"))
    assert all(found[f"t{n}"] == f"t{n}" and found[f"p{n}"] == f"p{n}" for n in range(40))


TWO_CHAINS = """HloModule m

ENTRY e {
  x = f32[16,8]{1,0} parameter(0)
  s = f32[16,8]{1,0} abs(x)
  t1 = f32[8,16]{1,0} transpose(s), dimensions={1,0}
  t2 = f32[8,16]{1,0} transpose(s), dimensions={1,0}
  e1 = f32[8,16]{1,0} exponential(t1)
  e2 = f32[8,16]{1,0} exponential(t2)
  ROOT r = f32[8,16]{1,0} multiply(e1, e2)
}
"""


def test_the_links_of_one_of_two_equal_chains_go_with_those_of_one():
    lines = TWO_CHAINS.splitlines(keepends=True)
    lines[7], lines[8] = lines[8], lines[7]  # `e2` stands before `e1`
    other = "".join(lines).replace("abs(x)", "negate(x)")
    found = partners(TWO_CHAINS, other)
    assert found["t1"][1] == found["e1"][1] and found["t2"][1] == found["e2"][1]
    assert {found["t1"], found["t2"]} == {"t1", "t2"} and found["s"] == "s"


LOST = """HloModule m

ENTRY e {
  p0 = f32[8]{0} parameter(0)
  p1 = f32[8]{0} parameter(1)
  p2 = f32[8]{0} parameter(2)
  q = f32[8]{0} tanh(p0)
  a = f32[8]{0} minimum(q, p1), metadata={op_name="f" source_file="f.py" source_line=1}
  b = f32[8]{0} minimum(a, p2), metadata={op_name="f" source_file="f.py" source_line=2}
  c = f32[8]{0} tanh(a), metadata={op_name="f" source_file="f.py" source_line=3}
  d = f32[8]{0} minimum(c, p2), metadata={op_name="f" source_file="f.py" source_line=4}
  ROOT s = f32[8]{0} add(b, d), metadata={op_name="f" source_file="f.py" source_line=5}
}
"""


def test_of_two_like_readers_of_a_value_the_one_of_the_line_is_taken():
    """Where an operation is lost, its operand gets its readers, and one of them is like it."""
    new = "".join(line for line in LOST.splitlines(keepends=True) if " a = " not in line).replace("(a", "(q")
    found = partners(LOST, new)
    assert found["b"] == "b" and "a" not in found
