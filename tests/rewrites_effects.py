"""Rewrites of modules with side effects and control dependencies: rows for `rewrites`."""

from __future__ import annotations

from rewrites import edited, right, wrong

# ---- draws and other side effects

DRAWS = """\
HloModule m

ENTRY e {
  z = f32[] constant(0)
  o = f32[] constant(1)
  a = f32[4]{0} rng(z, o), distribution=rng_uniform
  b = f32[4]{0} rng(z, o), distribution=rng_uniform
  x = f32[4]{0} negate(a)
  y = f32[4]{0} negate(b)
  ROOT r = f32[4]{0} subtract(x, y)
}
"""
wrong("two draws made one", DRAWS, ("negate(b)", "negate(a)"))
wrong("users of two draws merged", DRAWS, ("subtract(x, y)", "subtract(x, x)"))
wrong("a draw lost", DRAWS, ("  b = f32[4]{0} rng(z, o), distribution=rng_uniform\n", ""), ("negate(b)", "negate(a)"))
wrong(
    "a draw for each user",
    edited(DRAWS, ("negate(b)", "negate(a)")),
    ("negate(a)\n  y = f32[4]{0} negate(a)", "negate(a)\n  y = f32[4]{0} negate(b)"),
)
wrong("a draw more", DRAWS, ("  x = ", "  c = f32[4]{0} rng(z, o), distribution=rng_uniform\n  x = "))
wrong(
    "a dead draw lost",
    edited(DRAWS, ("negate(b)", "negate(a)")),
    ("  b = f32[4]{0} rng(z, o), distribution=rng_uniform\n", ""),
)
wrong("other bounds of a draw", DRAWS, ("b = f32[4]{0} rng(z, o)", "b = f32[4]{0} rng(o, z)"))
wrong(
    "another distribution",
    DRAWS,
    ("b = f32[4]{0} rng(z, o), distribution=rng_uniform", "b = f32[4]{0} rng(z, o), distribution=rng_normal"),
)
wrong("a draw of which nobody takes the half", DRAWS, ("subtract(x, y)", "subtract(x, a)"))
wrong(
    "a constant instead of a draw",
    DRAWS,
    ("negate(b)", "negate(c)"),
    ("  x = ", "  c = f32[4]{0} broadcast(o), dimensions={}\n  x = "),
)
right("two draws, either way", DRAWS, ("subtract(x, y)", "subtract(y, x)"))
right(
    "two draws in another order of the text",
    DRAWS,
    ("negate(a)", "negate(c)"),
    ("  a = f32[4]{0} rng(z, o), distribution=rng_uniform\n", ""),
    ("  x = ", "  c = f32[4]{0} rng(z, o), distribution=rng_uniform\n  x = "),
)
right(
    "what reads a draw in a fusion",
    DRAWS,
    ("x = f32[4]{0} negate(a)", "x = f32[4]{0} fusion(a), kind=kLoop, calls=minus"),
    ("ENTRY", "minus { p = f32[4]{0} parameter(0) ROOT n = f32[4]{0} negate(p) }\n\nENTRY"),
)

PAIRS = """\
HloModule m

ENTRY e {
  z = f32[] constant(0)
  o = f32[] constant(1)
  a = f32[4]{0} rng(z, o), distribution=rng_uniform
  b = f32[4]{0} rng(z, o), distribution=rng_uniform
  c = f32[4]{0} rng(z, o), distribution=rng_uniform
  d = f32[4]{0} rng(z, o), distribution=rng_uniform
  x = f32[4]{0} subtract(a, b)
  y = f32[4]{0} subtract(c, d)
  p = f32[4]{0} multiply(a, c)
  ROOT r = (f32[4]{0}, f32[4]{0}, f32[4]{0}) tuple(x, y, p)
}
"""
wrong("pairs of draws crossed", PAIRS, ("multiply(a, c)", "multiply(a, b)"))
wrong("one pair of draws turned", PAIRS, ("subtract(c, d)", "subtract(d, c)"))
wrong("one draw of a pair in both", PAIRS, ("subtract(c, d)", "subtract(c, b)"))
wrong("a square instead of a product of two draws", PAIRS, ("multiply(a, c)", "multiply(a, a)"))
right(
    "all pairs of draws turned",
    PAIRS,
    ("subtract(a, b)", "subtract(b, a)"),
    ("subtract(c, d)", "subtract(d, c)"),
    ("multiply(a, c)", "multiply(b, d)"),
)


def ring(*edges: tuple[int, int]) -> str:
    """Six draws that nothing tells apart but which of them meet."""
    draws = "".join(f"  d{k} = f32[] rng(z, o), distribution=rng_uniform\n" for k in range(6))
    meets = "".join(
        f"  m{k} = f32[] multiply(d{a}, d{b})\n  e{k} = token[] outfeed(m{k}, t), outfeed_shape=f32[]\n"
        for k, (a, b) in enumerate(edges)
    )
    return f"HloModule m\n\nENTRY e {{\n  z = f32[] constant(0)\n  o = f32[] constant(1)\n  t = token[] after-all()\n{draws}{meets}  ROOT r = f32[] negate(z)\n}}\n"


SIX = ring((0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (5, 0))
TRIANGLES = ring((0, 1), (1, 2), (2, 0), (3, 4), (4, 5), (5, 3))
SHUFFLED = ring((4, 2), (3, 1), (0, 5), (1, 4), (5, 3), (0, 2))

STATES = """\
HloModule m

ENTRY e {
  a = u64[2]{0} rng-get-and-update-state(), delta=1
  b = u64[2]{0} rng-get-and-update-state(), delta=1, control-predecessors={a}
  c = u64[2]{0} rng-get-and-update-state(), delta=1, control-predecessors={b}
  x = u64[2]{0} subtract(a, b)
  ROOT r = (u64[2]{0}, u64[2]{0}) tuple(x, c)
}
"""
wrong("two states of a generator made one", STATES, ("subtract(a, b)", "subtract(a, a)"))
wrong("states in the other order", STATES, ("subtract(a, b)", "subtract(b, a)"))
wrong("another state", STATES, ("tuple(x, c)", "tuple(x, b)"))
wrong(
    "another step of the generator", STATES, ("delta=1, control-predecessors={b}", "delta=2, control-predecessors={b}")
)
wrong("an order lost", STATES, (", control-predecessors={b}", ""))
wrong("an order weakened", STATES, ("control-predecessors={b}", "control-predecessors={a}"))
wrong(
    "an order added",
    edited(STATES, (", control-predecessors={b}", "")),
    (
        "c = u64[2]{0} rng-get-and-update-state(), delta=1",
        "c = u64[2]{0} rng-get-and-update-state(), delta=1, control-predecessors={a}",
    ),
)
right("an order that others imply", STATES, ("control-predecessors={b}", "control-predecessors={a, b}"))
right(
    "an order that others implied",
    edited(STATES, ("control-predecessors={b}", "control-predecessors={b, a}")),
    ("control-predecessors={b, a}", "control-predecessors={b}"),
)

TOKENS = """\
HloModule m

ENTRY e {
  t = token[] after-all()
  i = (f32[4]{0}, token[]) infeed(t)
  v = f32[4]{0} get-tuple-element(i), index=0
  j = (f32[4]{0}, token[]) infeed(t)
  w = f32[4]{0} get-tuple-element(j), index=0
  k = token[] get-tuple-element(j), index=1
  x = f32[4]{0} subtract(v, w)
  u = token[] outfeed(x, k), outfeed_shape=f32[4]{0}
  s = (f32[4]{0}, u32[], token[]) send(x, u), channel_id=1, is_host_transfer=true, frontend_attributes={_xla_host_transfer_rendezvous="a"}
  d = token[] send-done(s), channel_id=1, is_host_transfer=true
  g = (f32[4]{0}, u32[], token[]) recv(d), channel_id=2, is_host_transfer=true, sharding={maximal device=0}
  h = (f32[4]{0}, token[]) recv-done(g), channel_id=2, is_host_transfer=true
  y = f32[4]{0} get-tuple-element(h), index=0
  ROOT r = f32[4]{0} add(x, y)
}
"""
wrong("two transfers made one", TOKENS, ("get-tuple-element(j), index=0", "get-tuple-element(i), index=0"))
wrong("transfers in the other order", TOKENS, ("subtract(v, w)", "subtract(w, v)"))
wrong("another token", TOKENS, ("outfeed(x, k)", "outfeed(x, t)"))
wrong("a transfer that no longer waits", TOKENS, ("recv(d)", "recv(t)"))
wrong("another value sent", TOKENS, ("outfeed(x, k)", "outfeed(v, k)"))
wrong(
    "a transfer lost",
    TOKENS,
    ("  u = token[] outfeed(x, k), outfeed_shape=f32[4]{0}\n", ""),
    ("send(x, u)", "send(x, k)"),
)
wrong("a transfer twice", TOKENS, ("  s = ", "  m = token[] outfeed(x, k), outfeed_shape=f32[4]{0}\n  s = "))
wrong("another channel", TOKENS, ("recv(d), channel_id=2", "recv(d), channel_id=3"))
wrong("another name of the other end", TOKENS, ('rendezvous="a"', 'rendezvous="b"'))
wrong("another device of the other end", TOKENS, ("maximal device=0", "maximal device=1"))
wrong(
    "to a device instead of the host",
    TOKENS,
    ("send(x, u), channel_id=1, is_host_transfer=true", "send(x, u), channel_id=1"),
)
wrong(
    "the layout of what is transferred",
    TOKENS,
    ("i = (f32[4]{0}, token[]) infeed", "i = (f32[4]{0:T(128)}, token[]) infeed"),
    ("v = f32[4]{0} get", "v = f32[4]{0:T(128)} get"),
)
wrong(
    "a configuration of a transfer",
    TOKENS,
    ("j = (f32[4]{0}, token[]) infeed(t)", 'j = (f32[4]{0}, token[]) infeed(t), infeed_config="x"'),
)
right(
    "a token by another name",
    TOKENS,
    ("outfeed(x, k)", "outfeed(x, l)"),
    ("  u = ", "  q = (f32[4]{0}, token[]) tuple(w, k)\n  l = token[] get-tuple-element(q), index=1\n  u = "),
)

CUSTOM = """\
HloModule m

f { a = f32[4]{0} parameter(0) ROOT r = f32[4]{0} negate(a) }

ENTRY e {
  p = f32[4]{0} parameter(0)
  a = f32[4]{0} custom-call(p), custom_call_target="log", custom_call_has_side_effect=true, backend_config="x"
  b = f32[4]{0} custom-call(p), custom_call_target="log", custom_call_has_side_effect=true, backend_config="x"
  c = () custom-call(a), custom_call_target="note", custom_call_has_side_effect=true
  d = f32[4]{0} custom-call(p), custom_call_target="pure", backend_config="x", called_computations={f}, output_to_operand_aliasing={{}: (0, {})}
  x = f32[4]{0} subtract(a, b)
  ROOT r = f32[4]{0} add(x, d)
}
"""
wrong("two custom calls with side effects made one", CUSTOM, ("subtract(a, b)", "subtract(a, a)"))
wrong(
    "a custom call without a result lost",
    CUSTOM,
    ('  c = () custom-call(a), custom_call_target="note", custom_call_has_side_effect=true\n', ""),
)
wrong(
    "a custom call without a result twice",
    CUSTOM,
    ("  d = ", '  k = () custom-call(a), custom_call_target="note", custom_call_has_side_effect=true\n  d = '),
)
wrong("what is noted", CUSTOM, ("c = () custom-call(a)", "c = () custom-call(b)"), ("subtract(a, b)", "subtract(a, b)"))
wrong("another target", CUSTOM, ('"pure"', '"impure"'))
wrong("another configuration", CUSTOM, ('"pure", backend_config="x"', '"pure", backend_config="y"'))
wrong(
    "a side effect denied",
    CUSTOM,
    (
        'c = () custom-call(a), custom_call_target="note", custom_call_has_side_effect=true',
        'c = () custom-call(a), custom_call_target="note"',
    ),
)
wrong(
    "a side effect claimed",
    CUSTOM,
    ('custom_call_target="pure"', 'custom_call_target="pure", custom_call_has_side_effect=true'),
)
wrong("what a custom call may call", CUSTOM, ("negate(a)", "abs(a)"))
NOTES = edited(
    CUSTOM,
    (
        "f { a = f32[4]{0} parameter(0) ROOT r = f32[4]{0} negate(a) }",
        "f { a = f32[4,6]{1,0} parameter(0) b = f32[] parameter(1) ROOT r = s32[2,2]{1,0} iota(), iota_dimension=0 }",
    ),
)
wrong("the type of what a custom call may call takes", NOTES, ("a = f32[4,6]{1,0}", "a = s32[4,6]{1,0}"))
wrong("the layout of what a custom call may call takes", NOTES, ("a = f32[4,6]{1,0}", "a = f32[4,6]{0,1}"))
wrong("the layout of what a custom call may call gives", NOTES, ("r = s32[2,2]{1,0}", "r = s32[2,2]{0,1}"))
wrong("how much a custom call may call takes", NOTES, (" b = f32[] parameter(1)", ""))
wrong("memory that a custom call shares", CUSTOM, (", output_to_operand_aliasing={{}: (0, {})}", ""))
wrong(
    "an operand of a custom call",
    CUSTOM,
    ('custom-call(p), custom_call_target="pure"', 'custom-call(a), custom_call_target="pure"'),
)
right(
    "a pure custom call once",
    edited(
        CUSTOM,
        ("add(x, d)", "add(k, d)"),
        (
            "  x = ",
            '  h = f32[4]{0} custom-call(p), custom_call_target="h"\n  i = f32[4]{0} custom-call(p), '
            'custom_call_target="h"\n  k = f32[4]{0} add(h, i)\n  x = ',
        ),
    ),
    ("add(h, i)", "add(h, h)"),
)

# ---- side effects in called computations

TWICE = """\
HloModule m

noisy { p = f32[4]{0} parameter(0) z = f32[] constant(0) o = f32[] constant(1) d = f32[4]{0} rng(z, o), distribution=rng_uniform ROOT r = f32[4]{0} add(p, d) }
deeper { p = f32[4]{0} parameter(0) a = f32[4]{0} call(p), to_apply=noisy b = f32[4]{0} fusion(p), kind=kLoop, calls=noisy ROOT r = f32[4]{0} subtract(a, b) }

ENTRY e {
  p = f32[4]{0} parameter(0)
  a = f32[4]{0} call(p), to_apply=noisy
  b = f32[4]{0} call(p), to_apply=noisy
  x = f32[4]{0} subtract(a, b)
  c = f32[4]{0} call(x), to_apply=deeper
  d = f32[4]{0} call(x), to_apply=deeper
  ROOT r = f32[4]{0} divide(c, d)
}
"""
IN_PLACE = (
    "a = f32[4]{0} call(p), to_apply=noisy\n  b = f32[4]{0} call(p), to_apply=noisy",
    "z = f32[] constant(0)\n  o = f32[] constant(1)\n  u = f32[4]{0} rng(z, o), distribution=rng_uniform\n  v = "
    "f32[4]{0} rng(z, o), distribution=rng_uniform\n"
    "  a = f32[4]{0} add(p, u)\n  b = f32[4]{0} add(p, v)",
)
wrong("two calls that draw made one", TWICE, ("subtract(a, b)\n  c", "subtract(a, a)\n  c"))
wrong("two calls that draw deeper made one", TWICE, ("divide(c, d)", "divide(c, c)"))
wrong(
    "a call that draws lost",
    TWICE,
    ("divide(c, d)", "divide(c, c)"),
    ("  d = f32[4]{0} call(x), to_apply=deeper\n", ""),
)
wrong("two calls that draw put in with one draw", TWICE, (IN_PLACE[0], IN_PLACE[1].replace("add(p, v)", "add(p, u)")))
wrong(
    "two calls that draw put in without one",
    TWICE,
    (
        IN_PLACE[0],
        IN_PLACE[1]
        .replace("  v = f32[4]{0} rng(z, o), distribution=rng_uniform\n", "")
        .replace("add(p, v)", "add(p, u)"),
    ),
)
wrong(
    "draws inside a callee made one",
    TWICE,
    ("ROOT r = f32[4]{0} subtract(a, b) }", "ROOT r = f32[4]{0} subtract(a, a) }"),
)
right("two calls that draw put in", TWICE, IN_PLACE)
right("two calls that draw, either way", TWICE, ("subtract(a, b)\n  c", "subtract(b, a)\n  c"))
right(
    "one of two calls that draw put in",
    TWICE,
    (
        "b = f32[4]{0} call(p), to_apply=noisy\n  x",
        "z = f32[] constant(0)\n  o = f32[] constant(1)\n  v = f32[4]{0} rng(z, o), distribution=rng_uniform\n  b = "
        "f32[4]{0} add(p, v)\n  x",
    ),
)

LOOPS = """\
HloModule m

noisy { p = f32[4]{0} parameter(0) z = f32[] constant(0) o = f32[] constant(1) d = f32[4]{0} rng(z, o), distribution=rng_uniform g = f32[4]{0} rng(z, o), distribution=rng_uniform h = f32[4]{0} subtract(d, g) ROOT r = f32[4]{0} add(p, h) }
calm { p = f32[4]{0} parameter(0) ROOT r = f32[4]{0} negate(p) }
asks { p = f32[4]{0} parameter(0) z = f32[] constant(0) o = f32[] constant(1) d = f32[] rng(z, o), distribution=rng_uniform ROOT r = pred[] compare(d, z), direction=GT }
never { p = f32[4]{0} parameter(0) ROOT r = pred[] constant(false) }

ENTRY e {
  p = f32[4]{0} parameter(0)
  c = pred[] parameter(1)
  a = f32[4]{0} while(p), condition=never, body=noisy
  b = f32[4]{0} while(p), condition=never, body=noisy
  d = f32[4]{0} while(p), condition=asks, body=calm
  f = f32[4]{0} while(p), condition=never, body=calm
  g = f32[4]{0} conditional(c, p, p), true_computation=noisy, false_computation=calm
  h = f32[4]{0} conditional(c, p, p), true_computation=noisy, false_computation=calm
  x = f32[4]{0} subtract(a, b)
  y = f32[4]{0} subtract(g, h)
  ROOT r = (f32[4]{0}, f32[4]{0}, f32[4]{0}) tuple(x, y, d)
}
"""
wrong("two loops that draw made one", LOOPS, ("subtract(a, b)", "subtract(a, a)"))
wrong(
    "a loop that draws lost",
    LOOPS,
    ("subtract(a, b)", "subtract(a, a)"),
    ("  b = f32[4]{0} while(p), condition=never, body=noisy\n", ""),
)
wrong("two conditionals that draw made one", LOOPS, ("subtract(g, h)", "subtract(g, g)"))
wrong(
    "a conditional that draws lost",
    LOOPS,
    ("subtract(g, h)", "subtract(g, g)"),
    ("  h = f32[4]{0} conditional(c, p, p), true_computation=noisy, false_computation=calm\n", ""),
)
wrong("draws of one iteration made one", LOOPS, ("subtract(d, g)", "subtract(d, d)"))
wrong(
    "a draw of each iteration lost",
    LOOPS,
    ("subtract(d, g)", "subtract(d, d)"),
    (" g = f32[4]{0} rng(z, o), distribution=rng_uniform", ""),
)
wrong(
    "a loop whose condition draws lost",
    LOOPS,
    ("  d = f32[4]{0} while(p), condition=asks, body=calm\n", ""),
    ("tuple(x, y, d)", "tuple(x, y, f)"),
)
wrong("a condition that no longer draws", LOOPS, ("condition=asks", "condition=never"))
wrong(
    "draws in the other branch",
    LOOPS,
    (
        "h = f32[4]{0} conditional(c, p, p), true_computation=noisy, false_computation=calm",
        "h = f32[4]{0} conditional(c, p, p), true_computation=calm, false_computation=noisy",
    ),
)
wrong(
    "a draw more in a branch that nobody asks",
    LOOPS,
    (
        "calm { p = f32[4]{0} parameter(0)",
        "calm { p = f32[4]{0} parameter(0) z = f32[] constant(0) d = f32[] rng(z, z), distribution=rng_uniform",
    ),
)
right("two loops that draw, either way", LOOPS, ("subtract(a, b)", "subtract(b, a)"))
right("two draws of an iteration, either way", LOOPS, ("subtract(d, g)", "subtract(g, d)"))
right("a calm loop that nobody needs", LOOPS, ("  f = f32[4]{0} while(p), condition=never, body=calm\n", ""))
right("two conditionals that draw, either way", LOOPS, ("subtract(g, h)", "subtract(h, g)"))
right(
    "equal bodies, once",
    edited(
        LOOPS,
        (
            "calm {",
            "same { p = f32[4]{0} parameter(0) z = f32[] constant(0) o = f32[] constant(1) g = f32[4]{0} rng(z, o), "
            "distribution=rng_uniform d = f32[4]{0} rng(z, o), distribution=rng_uniform h = f32[4]{0} subtract(d, g) "
            "ROOT r = f32[4]{0} add(h, p) }\ncalm {",
        ),
        ("b = f32[4]{0} while(p), condition=never, body=noisy", "b = f32[4]{0} while(p), condition=never, body=same"),
    ),
    ("body=same", "body=noisy"),
)

ALONE = """\
HloModule m

ENTRY e {
  p = f32[4]{0} parameter(0)
  z = f32[] constant(0)
  t = token[] after-all()
  d = f32[4]{0} rng(z, z), distribution=rng_uniform, metadata={op_name="a"}, backend_config="a", statistics={visualizing_index=0,a=1}, origin={{"a"}}
  ROOT r = f32[4]{0} negate(p), origin={{"a"}}
}
"""
wrong(
    "the only side effect lost",
    ALONE,
    ("  d = ", "  e = "),
    (
        'e = f32[4]{0} rng(z, z), distribution=rng_uniform, metadata={op_name="a"}, backend_config="a", '
        'statistics={visualizing_index=0,a=1}, origin={{"a"}}',
        "e = f32[4]{0} broadcast(z), dimensions={}",
    ),
)
wrong("the only side effect of all, with another result", ALONE, ("negate(p)", "abs(p)"))
right("metadata of a side effect", ALONE, ('op_name="a"', 'op_name="b"'))
right("a configuration of a side effect that reads none", ALONE, ('backend_config="a"', 'backend_config="b"'))
right("statistics of a side effect", ALONE, ("visualizing_index=0,a=1", "visualizing_index=0,a=2"))
right("the origin of a value", ALONE, ('negate(p), origin={{"a"}}', 'negate(p), origin={{"b"}}'))
right("the origin of a side effect", ALONE, ('a=1}, origin={{"a"}}', 'a=1}, origin={{"b"}}'))

ELSEWHERE = """\
HloModule m

there { p = f32[8]{0} parameter(0) ROOT r = f32[8]{0} negate(p) }, execution_thread="a"

ENTRY e {
  p = f32[8]{0} parameter(0)
  s = ((f32[8]{0}), f32[8]{0}, s32[]) async-start(p), async_execution_thread="a", calls=there
  ROOT d = f32[8]{0} async-done(s), async_execution_thread="a", calls=there
}
"""
wrong("a computation on another thread", ELSEWHERE, ('}, execution_thread="a"', '}, execution_thread="b"'))
wrong("what is computed on another thread", ELSEWHERE, ("negate(p)", "abs(p)"))
wrong(
    "what a computation on another thread waits with",
    ELSEWHERE,
    ("s = ((f32[8]{0}), f32[8]{0}, s32[])", "s = ((f32[8]{0}), f32[8]{0}, u32[])"),
)
wrong(
    "a start whose operand lies in another way",
    edited(ELSEWHERE, ("async-start(p)", "async-start(n)"), ("  s = ", "  n = f32[8]{0} negate(p)\n  s = ")),
    ("n = f32[8]{0}", "n = f32[8]{0:S(5)}"),
)
wrong("a start that says another layout of its operand", ELSEWHERE, ("((f32[8]{0}), ", "((f32[8]{0:S(5)}), "))
wrong("a start that says another layout of its result", ELSEWHERE, ("f32[8]{0}, s32[])", "f32[8]{0:S(5)}, s32[])"))
wrong(
    "an end of another layout",
    edited(ELSEWHERE, ("ROOT d = ", "d = "), ("calls=there\n}", "calls=there\n  ROOT n = f32[8]{0} negate(d)\n}")),
    ("d = f32[8]{0} async", "d = f32[8]{0:S(5)} async"),
)

SHORT_FORMS = """\
HloModule m

ENTRY e {
  p = f32[4,6]{1,0} parameter(0)
  z = f32[] constant(0)
  t = token[] after-all()
  n = f32[4,6]{1,0} negate(p)
  a = ((f32[], f32[]), f32[4]{0}, u32[]) rng-start(z, z), distribution=rng_uniform
  b = ((f32[], f32[]), f32[4]{0}, u32[]) rng-start(z, z), distribution=rng_uniform
  x = f32[4]{0} rng-done(a)
  y = f32[4]{0} rng-done(b)
  s = f32[4]{0} subtract(x, y)
  i = ((token[]), (f32[4]{0}, token[]), u32[]) infeed-start(t)
  j = ((token[]), (f32[4]{0}, token[]), u32[]) infeed-start(t)
  k = (f32[4]{0}, token[]) infeed-done(i)
  l = (f32[4]{0}, token[]) infeed-done(j)
  v = f32[4]{0} get-tuple-element(k), index=0
  w = f32[4]{0} get-tuple-element(l), index=0
  d = f32[4]{0} divide(v, w)
  c = ((f32[4,6]{1,0}), f32[4]{0}, u32[]) custom-call-start(n), custom_call_target="f", backend_config="a"
  f = f32[4]{0} custom-call-done(c)
  g = ((f32[4]{0}, f32[4]{0}), f32[4]{0}, u32[]) power-start(s, d)
  h = f32[4]{0} power-done(g)
  ROOT r = (f32[4]{0}, f32[4]{0}) tuple(f, h)
}
"""
wrong("two draws that are only started made one", SHORT_FORMS, ("subtract(x, y)", "subtract(x, x)"))
wrong(
    "a draw that is only started lost",
    SHORT_FORMS,
    ("  b = ((f32[], f32[]), f32[4]{0}, u32[]) rng-start(z, z), distribution=rng_uniform\n", ""),
    ("  y = f32[4]{0} rng-done(b)\n", ""),
    ("subtract(x, y)", "subtract(x, x)"),
)
wrong("two transfers that are only started made one", SHORT_FORMS, ("divide(v, w)", "divide(v, v)"))
wrong("operands of what is only started", SHORT_FORMS, ("power-start(s, d)", "power-start(d, s)"))
wrong(
    "a layout that a custom call reads when it is started",
    SHORT_FORMS,
    ("n = f32[4,6]{1,0}", "n = f32[4,6]{0,1}"),
)
wrong(
    "a layout that a custom call reads when it is started, said twice",
    SHORT_FORMS,
    ("n = f32[4,6]{1,0}", "n = f32[4,6]{0,1}"),
    ("((f32[4,6]{1,0}), ", "((f32[4,6]{0,1}), "),
)
wrong(
    "a configuration of a custom call that is started",
    SHORT_FORMS,
    ('"f", backend_config="a"', '"f", backend_config="b"'),
)
right("two draws that are only started, either way", SHORT_FORMS, ("subtract(x, y)", "subtract(y, x)"))
right(
    "waiting for a draw twice",
    SHORT_FORMS,
    ("subtract(x, y)", "subtract(x, o)"),
    ("  s = ", "  o = f32[4]{0} rng-done(b)\n  s = "),
)

UNKNOWN = """\
HloModule m

ENTRY e {
  p = f32[4,6]{1,0} parameter(0)
  n = f32[4,6]{1,0} negate(p)
  a = f32[4]{0} mystery(n)
  b = f32[4]{0} mystery(n)
  ROOT r = f32[4]{0} subtract(a, b)
}
"""
wrong("two of what nobody knows made one", UNKNOWN, ("subtract(a, b)", "subtract(a, a)"))
wrong(
    "one of what nobody knows lost",
    UNKNOWN,
    ("subtract(a, b)", "subtract(a, a)"),
    ("  b = f32[4]{0} mystery(n)\n", ""),
)
wrong("a layout of what nobody knows", UNKNOWN, ("n = f32[4,6]{1,0}", "n = f32[4,6]{0,1}"))
wrong(
    "a configuration of what nobody knows",
    UNKNOWN,
    ("b = f32[4]{0} mystery(n)", 'b = f32[4]{0} mystery(n), backend_config="a"'),
)
right("two of what nobody knows, either way", UNKNOWN, ("subtract(a, b)", "subtract(b, a)"))

HANDED_ON = """\
HloModule m

yes { p = f32[4,6]{1,0} parameter(0) ROOT r = f32[4,6]{1,0} ceil(p) }
no { p = f32[4,6]{1,0} parameter(0) ROOT r = f32[4,6]{1,0} floor(p) }
never { p = f32[4,6]{1,0} parameter(0) ROOT r = pred[] constant(false) }

ENTRY e {
  p = f32[4,6]{1,0} parameter(0)
  n = f32[4,6]{1,0} negate(p)
  b = f32[4,6]{1,0} opt-barrier(n)
  c = f32[4,6]{1,0} abs(b)
  s = (f32[4,6]{1,0}, f32[4,6]{1,0}, u32[]) copy-start(c)
  e = f32[4,6]{1,0} copy-done(s)
  k = pred[] parameter(1)
  f = f32[4,6]{1,0} tan(e)
  i = f32[4,6]{1,0} conditional(k, f, f), true_computation=yes, false_computation=no
  g = f32[4,6]{1,0} cosine(i)
  w = f32[4,6]{1,0} while(g), condition=never, body=yes
  ROOT r = f32[4,6]{1,0} sine(w)
}
"""
wrong("a barrier of another layout", HANDED_ON, ("n = f32[4,6]{1,0}", "n = f32[4,6]{0,1}"))
wrong("a copy of another layout than what is copied", HANDED_ON, ("c = f32[4,6]{1,0}", "c = f32[4,6]{0,1}"))
wrong("a copy that ends in another layout", HANDED_ON, ("e = f32[4,6]{1,0}", "e = f32[4,6]{0,1}"))
right(
    "a copy that is started to another layout",
    HANDED_ON,
    ("s = (f32[4,6]{1,0}, ", "s = (f32[4,6]{0,1}, "),
    ("e = f32[4,6]{1,0}", "e = f32[4,6]{0,1}"),
)
wrong("a branch that is given another layout", HANDED_ON, ("f = f32[4,6]{1,0}", "f = f32[4,6]{0,1}"))
wrong("a choice of another layout than its branches", HANDED_ON, ("i = f32[4,6]{1,0}", "i = f32[4,6]{0,1}"))
wrong("a loop that is given another layout", HANDED_ON, ("g = f32[4,6]{1,0}", "g = f32[4,6]{0,1}"))
wrong("a loop of another layout than its body", HANDED_ON, ("w = f32[4,6]{1,0}", "w = f32[4,6]{0,1}"))
