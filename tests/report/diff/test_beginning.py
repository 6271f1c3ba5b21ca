"""What a difference begins with."""

from __future__ import annotations

from hlo_opt.report.diff.comparison import diff

HEAD = "HloModule m\n\nENTRY e {\n"
ARRAY = "f32[64,128]{1,0}"
BACK = ', metadata={op_name="jit(f)/transpose(jvp())/x"}'


def module(*lines):
    """A module of instructions; ARRAY stands for `@`."""
    return HEAD + "".join(f"  {line}\n" for line in lines).replace("@", ARRAY) + "}\n"


def first(old, new):
    """The name of the first change of the first difference."""
    return diff(old, new, fuse="never").differences[0].changes[0].name


def test_where_nothing_reads_a_value_any_more_the_value_is_told():
    """A long chain that was computed for one value."""
    chain = ["a = @ tanh(q)", "b = @ sine(a)", "c = @ exponential(b)", "d = @ negate(q)", "g = @ add(c, d)"]
    with_it = module("p = @ parameter(0)", "q = @ parameter(1)", *chain, "m = @ multiply(p, g)", "ROOT r = @ abs(m)")
    without = module("p = @ parameter(0)", "q = @ parameter(1)", "m = @ multiply(p, p)", "ROOT r = @ abs(m)")
    assert first(with_it, without) == "g"


def test_where_no_gradient_flows_what_it_is_computed_from_is_told():
    """All results of a backward pass go because of the first of its operations."""
    names = [f"w{n}" for n in range(6)]
    parameters = [f"{name} = @ parameter({n})" for n, name in enumerate(names)]
    back = [f"s = @ subtract(w0, w1){BACK}", f"t = @ multiply(s, w1){BACK}"]
    back += [f"g{n} = @ multiply(t, {name}){BACK}" for n, name in enumerate(names)]
    new = [f"n{n} = @ add({name}, g{n})" for n, name in enumerate(names)]
    root = f"ROOT r = ({', '.join(['@'] * 6)}) tuple({', '.join(f'n{n}' for n in range(6))})"
    old = module(*parameters, *back, *new, root)
    stopped = [f"n{n} = @ add({name}, {name})" for n, name in enumerate(names)]
    assert first(old, module(*parameters, *stopped, root)) == "s"


def test_a_barrier_is_why_something_is_computed_again():
    parameters = ["p = @ parameter(0)", "q = @ parameter(1)", "a = @ tanh(p)", "b = @ multiply(a, q)"]
    old = module(*parameters, "c = @ exponential(a)", "ROOT r = @ add(b, c)")
    new = module(*parameters, "o = @ opt-barrier(p)", "d = @ tanh(o)", "c = @ exponential(d)", "ROOT r = @ add(b, c)")
    assert first(old, new) == "o"


def test_what_saves_most_comes_first_where_nothing_is_slower():
    text = module(
        "p = @ parameter(0)",
        "q = f32[4096,1024]{1,0} parameter(1)",
        "a = @ tanh(p)",
        "b = @ negate(a)",
        "c = f32[4096,1024]{1,0} tanh(q)",
        "d = f32[4096,1024]{1,0} negate(c)",
        "ROOT r = (@, f32[4096,1024]{1,0}) tuple(b, d)",
    )
    less = text.replace("negate(c)", "negate(q)").replace("negate(a)", "negate(p)")
    less = "".join(line for line in less.splitlines(keepends=True) if " tanh(" not in line)
    found = diff(text, less, fuse="never").differences
    assert [d.changes[0].name for d in found] == ["c", "a"] and found[0].us < found[1].us < 0
