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


def test_a_cast_that_only_matches_another_operand_is_not_told_first():
    """`v` is widened because `k` is; it stands before `k` in the text."""
    narrow = "bf16[64,128]{1,0}"
    old = f"""HloModule m

ENTRY e {{
  p = {narrow} parameter(0)
  q = {narrow} parameter(1)
  v = {narrow} tanh(q)
  s = {narrow} abs(p)
  k = {narrow} negate(s)
  ROOT r = {narrow} multiply(k, v)
}}
"""
    wide = old.replace(
        f"  s = {narrow} abs(p)\n", f"  w = {ARRAY} convert(v)\n  s = {narrow} abs(p)\n  c = {ARRAY} convert(s)\n"
    )
    wide = wide.replace(f"k = {narrow} negate(s)", f"k = {ARRAY} negate(c)")
    wide = wide.replace(f"ROOT r = {narrow} multiply(k, v)", f"ROOT r = {ARRAY} multiply(k, w)")
    assert first(old, wide) == "c"


def loop(body: str, kept: str, read: str) -> str:
    """A loop of 8 rounds that keeps an array of each round, of type `kept`."""
    state = f"(s32[], {ARRAY}, {kept}[8,64,128]{{2,1,0}})"
    return f"""HloModule m

round {{
  s = {state} parameter(0)
  i = s32[] get-tuple-element(s), index=0
  one = s32[] constant(1)
  j = s32[] add(i, one)
  z = s32[] constant(0)
  x = {ARRAY} get-tuple-element(s), index=1
  all = {kept}[8,64,128]{{2,1,0}} get-tuple-element(s), index=2
  {body}
  one_of = {kept}[1,64,128]{{2,1,0}} reshape({read})
  stacked = {kept}[8,64,128]{{2,1,0}} dynamic-update-slice(all, one_of, i, z, z)
  ROOT t = {state} tuple(j, y, stacked)
}}

going {{
  s = {state} parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(8)
  ROOT l = pred[] compare(i, n), direction=LT
}}

ENTRY e {{
  p = {ARRAY} parameter(0)
  empty = {kept}[] constant(0)
  a = {kept}[8,64,128]{{2,1,0}} broadcast(empty), dimensions={{}}
  z = s32[] constant(0)
  s = {state} tuple(z, p, a)
  ROOT w = {state} while(s), condition=going, body=round
}}
"""


def test_what_a_loop_keeps_comes_with_what_is_computed():
    """Another type of what a round keeps is not why it computes something else."""
    old = loop(f"h = {ARRAY} multiply(x, x)\n  y = {ARRAY} tanh(h)", "f32", "h")
    new = loop(f"h = pred[64,128]{{1,0}} compare(x, x), direction=GT\n  y = {ARRAY} select(h, x, x)", "pred", "h")
    (difference,) = diff(old, new, fuse="never").differences
    assert difference.changes[0].name == "y" and difference.changes[0].sites[0].opcode == "tanh"


ROUNDS = """
  i = s32[] get-tuple-element(s), index=0
  one = s32[] constant(1)
  j = s32[] add(i, one)
  x = f32[64,128]{1,0} get-tuple-element(s), index=1
"""
LOOPS = f"""HloModule m

inner {{
  s = (s32[], f32[64,128]{{1,0}}) parameter(0){ROUNDS}
  y = f32[64,128]{{1,0}} sine(x)
  ROOT t = (s32[], f32[64,128]{{1,0}}) tuple(j, y)
}}

going {{
  s = (s32[], f32[64,128]{{1,0}}) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(8)
  ROOT l = pred[] compare(i, n), direction=LT
}}
"""
INNER = """
  z{0} = s32[] constant(0)
  o{0} = (s32[], f32[64,128]{{1,0}}) tuple(z{0}, x{0})
  w{0} = (s32[], f32[64,128]{{1,0}}) while(o{0}), condition=going, body=inner
  y{0} = f32[64,128]{{1,0}} get-tuple-element(w{0}), index=1
  x{1} = f32[64,128]{{1,0}} cosine(y{0})
"""


def test_of_loops_that_went_or_came_the_largest_is_told():
    """A loop in a loop, and the rounds of the outer one after one another."""
    old = f"""{LOOPS}
outer {{
  s = (s32[], f32[64,128]{{1,0}}, f32[8]{{0}}) parameter(0){ROUNDS}
  k = f32[8]{{0}} get-tuple-element(s), index=2
  e0 = f32[64,128]{{1,0}} exponential(x)
  x0 = f32[64,128]{{1,0}} add(e0, x){INNER.format(0, 1)}
  ROOT t = (s32[], f32[64,128]{{1,0}}, f32[8]{{0}}) tuple(j, x1, k)
}}

twice {{
  s = (s32[], f32[64,128]{{1,0}}, f32[8]{{0}}) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(2)
  ROOT l = pred[] compare(i, n), direction=LT
}}

ENTRY e {{
  p = f32[64,128]{{1,0}} parameter(0)
  q = f32[8]{{0}} parameter(1)
  z = s32[] constant(0)
  s = (s32[], f32[64,128]{{1,0}}, f32[8]{{0}}) tuple(z, p, q)
  w = (s32[], f32[64,128]{{1,0}}, f32[8]{{0}}) while(s), condition=twice, body=outer
  ROOT r = f32[64,128]{{1,0}} get-tuple-element(w), index=1
}}
"""
    new = f"""{LOOPS}
ENTRY e {{
  p = f32[64,128]{{1,0}} parameter(0)
  q = f32[8]{{0}} parameter(1)
  e0 = f32[64,128]{{1,0}} exponential(p)
  x0 = f32[64,128]{{1,0}} add(e0, p){INNER.format(0, 1)}
  e1 = f32[64,128]{{1,0}} exponential(x1)
  x2 = f32[64,128]{{1,0}} add(e1, x1){INNER.format(2, 3)}
  ROOT r = f32[64,128]{{1,0}} negate(x3)
}}
"""
    assert first(old, new) == "w"
    assert first(new, old) == "w"


def test_a_gradient_comes_after_what_it_is_the_gradient_of():
    text = module(
        "p = @ parameter(0)",
        "n = f32[] constant(0.5)",
        f"b = @ broadcast(n), dimensions={{}}{BACK}",
        f"g = @ multiply(p, b){BACK}",
        "k = f32[] constant(2)",
        "c = f32[64]{0} broadcast(k), dimensions={}",
        "q = f32[64]{0} parameter(1)",
        "l = f32[64]{0} multiply(q, c)",
        "ROOT r = (@, f32[64]{0}) tuple(g, l)",
    )
    other = text.replace("constant(0.5)", "constant(0.25)").replace("constant(2)", "constant(4)")
    assert first(text, other) == "k"


PROMOTED = """HloModule m
ENTRY e {
  x = f32[64,32]{1,0} parameter(0)
  w = f32[32,16]{1,0} parameter(1)
  z = f32[64,32]{1,0} sine(x)
  u = bf16[32,16]{1,0} convert(w)
  %s
  ROOT out = %s[64,16]{1,0} tanh(y)
}
"""
DOT = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"


def test_a_cast_to_a_wider_type_comes_with_one_to_a_narrower_type_that_is_gone():
    narrow = f"narrow = bf16[64,32]{{1,0}} convert(z)\n  y = bf16[64,16]{{1,0}} dot(narrow, u), {DOT}"
    wide = f"wide = f32[32,16]{{1,0}} convert(u)\n  y = f32[64,16]{{1,0}} dot(z, wide), {DOT}"
    old, new = PROMOTED % (narrow, "bf16"), PROMOTED % (wide, "f32")
    assert first(old, new) == first(new, old) == "narrow"
