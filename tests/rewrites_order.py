"""Rewrites of modules with control dependencies: rows for `rewrites`."""

from __future__ import annotations

from rewrites import edited, right, wrong

# ---- control dependencies

ORDER = """\
HloModule m

inner { x = f32[8]{0} parameter(0) n = f32[8]{0} negate(x) c = f32[8]{0} cosine(x), control-predecessors={n} ROOT r = f32[8]{0} add(c, n) }
noisy { p = f32[8]{0} parameter(0) z = f32[] constant(0) o = f32[] constant(1) d = f32[8]{0} rng(z, o), distribution=rng_uniform ROOT r = f32[8]{0} negate(p) }

ENTRY e {
  p = f32[8]{0} parameter(0)
  q = f32[8]{0} parameter(1)
  k = f32[8]{0} call(p), to_apply=inner
  s = f32[8]{0} sine(q), control-predecessors={k}
  t = f32[8]{0} tanh(q), control-predecessors={s}
  u = f32[8]{0} custom-call(q), custom_call_target="f", custom_call_has_side_effect=true, control-predecessors={t}
  v = f32[8]{0} call(u), to_apply=noisy
  w = f32[8]{0} custom-call(p), custom_call_target="f", custom_call_has_side_effect=true, control-predecessors={v}
  x = f32[8]{0} abs(q), control-predecessors={u}
  y = f32[8]{0} add(s, t)
  z = f32[8]{0} add(w, x)
  ROOT r = (f32[8]{0}, f32[8]{0}, f32[8]{0}) tuple(y, z, k)
}
"""
wrong(
    "an order between values lost", ORDER, ("t = f32[8]{0} tanh(q), control-predecessors={s}", "t = f32[8]{0} tanh(q)")
)
wrong(
    "an order between values turned",
    ORDER,
    (
        "s = f32[8]{0} sine(q), control-predecessors={k}\n  t = f32[8]{0} tanh(q), control-predecessors={s}",
        "t = f32[8]{0} tanh(q), control-predecessors={k}\n  s = f32[8]{0} sine(q), control-predecessors={t}",
    ),
)
wrong("an order behind a call lost", ORDER, (", control-predecessors={k}", ""))
wrong("an order before a side effect lost", ORDER, (", control-predecessors={t}", ""))
wrong("an order behind a side effect lost", ORDER, (", control-predecessors={u}", ""))
wrong("an order behind what a call does lost", ORDER, (", control-predecessors={v}", ""))
wrong("an order in a callee lost", ORDER, (", control-predecessors={n}", ""))
wrong(
    "an order in a callee turned",
    ORDER,
    (
        "n = f32[8]{0} negate(x) c = f32[8]{0} cosine(x), control-predecessors={n}",
        "c = f32[8]{0} cosine(x) n = f32[8]{0} negate(x), control-predecessors={c}",
    ),
)
wrong(
    "only the result of a call waited for",
    ORDER,
    (
        'w = f32[8]{0} custom-call(p), custom_call_target="f", custom_call_has_side_effect=true, '
        "control-predecessors={v}",
        'h = f32[8]{0} negate(u)\n  w = f32[8]{0} custom-call(p), custom_call_target="f", '
        "custom_call_has_side_effect=true, control-predecessors={h}",
    ),
)
wrong(
    "an order that nobody asked for",
    ORDER,
    ("y = f32[8]{0} add(s, t)", "y = f32[8]{0} add(s, t), control-predecessors={x}"),
)
wrong(
    "a later value waited for",
    ORDER,
    ("x = f32[8]{0} abs(q), control-predecessors={u}", "x = f32[8]{0} abs(q), control-predecessors={w}"),
)
wrong(
    "an earlier value waited for",
    ORDER,
    ("x = f32[8]{0} abs(q), control-predecessors={u}", "x = f32[8]{0} abs(q), control-predecessors={t}"),
)
wrong(
    "what waits merged with what does not",
    edited(ORDER, ("  y = f32[8]{0} add(s, t)", "  l = f32[8]{0} sine(q)\n  y = f32[8]{0} add(s, l)")),
    ("add(s, l)", "add(l, l)"),
)
right(
    "an order that operands imply",
    ORDER,
    ("z = f32[8]{0} add(w, x)", "z = f32[8]{0} add(w, x), control-predecessors={w, u}"),
)
right("an order said twice", ORDER, ("control-predecessors={u}", "control-predecessors={u, t}"))
right("an order said through another", ORDER, ("control-predecessors={t}", "control-predecessors={s, t, k}"))
right(
    "a call that orders its members put in",
    edited(ORDER, (", control-predecessors={k}", "")),
    (
        "k = f32[8]{0} call(p), to_apply=inner",
        "n = f32[8]{0} negate(p)\n  c = f32[8]{0} cosine(p), control-predecessors={n}\n  k = f32[8]{0} add(c, n)",
    ),
)
right(
    "a call that draws put in, all of it waited for",
    ORDER,
    (
        "v = f32[8]{0} call(u), to_apply=noisy",
        "h = f32[] constant(0)\n  i = f32[] constant(1)\n  j = f32[8]{0} rng(h, i), distribution=rng_uniform\n  v = "
        "f32[8]{0} negate(u)",
    ),
    ("control-predecessors={v}", "control-predecessors={v, j}"),
)
wrong(
    "a call that draws put in, its draw not waited for",
    ORDER,
    (
        "v = f32[8]{0} call(u), to_apply=noisy",
        "h = f32[] constant(0)\n  i = f32[] constant(1)\n  j = f32[8]{0} rng(h, i), distribution=rng_uniform\n  v = "
        "f32[8]{0} negate(u)",
    ),
)
wrong(
    "a call that waits put in, its draw not held back",
    edited(
        ORDER,
        ("call(u), to_apply=noisy", "call(u), to_apply=noisy, control-predecessors={t}"),
        ("control-predecessors={v}", "control-predecessors={u}"),
    ),
    ("call(u), to_apply=noisy, control-predecessors={t}", "call(u), to_apply=noisy"),
)

WAITING = """\
HloModule m

noisy { p = f32[8]{0} parameter(0) z = f32[] constant(0) o = f32[] constant(1) d = f32[8]{0} rng(z, o), distribution=rng_uniform e = f32[8]{0} custom-call(d), custom_call_target="f", custom_call_has_side_effect=true ROOT r = f32[8]{0} negate(p) }
pair { p = f32[8]{0} parameter(0) a = f32[8]{0} sine(p) b = f32[8]{0} cosine(p) ROOT r = (f32[8]{0}, f32[8]{0}) tuple(a, b) }

ENTRY e {
  p = f32[8]{0} parameter(0)
  s = f32[8]{0} sine(p)
  v = f32[8]{0} call(p), to_apply=noisy, control-predecessors={s}
  c = (f32[8]{0}, f32[8]{0}) call(v), to_apply=pair, control-predecessors={s, v}
  x = f32[8]{0} get-tuple-element(c), index=0
  y = f32[8]{0} get-tuple-element(c), index=1
  k = (f32[8]{0}, f32[8]{0}) call(p), to_apply=pair, control-predecessors={s}
  l = f32[8]{0} get-tuple-element(k), index=0
  m = f32[8]{0} tanh(p), control-predecessors={k}
  ROOT r = (f32[8]{0}, f32[8]{0}, f32[8]{0}, f32[8]{0}, f32[8]{0}) tuple(v, x, y, l, m)
}
"""
PUT_IN = (
    "z = f32[] constant(0)\n  o = f32[] constant(1)\n  d = f32[8]{0} rng(z, o), distribution=rng_uniform, "
    'control-predecessors={s}\n  e = f32[8]{0} custom-call(d), custom_call_target="f", '
    "custom_call_has_side_effect=true\n  v = f32[8]{0} negate(p), control-predecessors={s}"
)
HELD = "v = f32[8]{0} call(p), to_apply=noisy, control-predecessors={s}"
right(
    "a call that waits put in, all of it held back",
    edited(WAITING, ("control-predecessors={s, v}", "control-predecessors={s}")),
    (HELD, PUT_IN),
)
wrong(
    "a call that waits put in, its draw let go",
    edited(WAITING, ("control-predecessors={s, v}", "control-predecessors={s}")),
    (HELD, PUT_IN.replace("rng_uniform, control-predecessors={s}", "rng_uniform")),
)
wrong(
    "a call that waits put in, its result let go",
    edited(WAITING, ("control-predecessors={s, v}", "control-predecessors={s}")),
    (HELD, PUT_IN.replace("negate(p), control-predecessors={s}", "negate(p)")),
)
wrong(
    "what a call does no longer waited for by another",
    WAITING,
    ("control-predecessors={s, v}", "control-predecessors={s}"),
)
right(
    "a call that waits for what its operand waited for",
    edited(WAITING, ("control-predecessors={s, v}", "control-predecessors={v}")),
    ("control-predecessors={v}", "control-predecessors={s, v}"),
)
wrong(
    "a call of several outputs that no longer waits",
    WAITING,
    ("call(p), to_apply=pair, control-predecessors={s}", "call(p), to_apply=pair"),
)
wrong(
    "one output of several waited for",
    WAITING,
    ("m = f32[8]{0} tanh(p), control-predecessors={k}", "m = f32[8]{0} tanh(p), control-predecessors={l}"),
)
right(
    "both outputs waited for one by one",
    WAITING,
    (
        "m = f32[8]{0} tanh(p), control-predecessors={k}",
        "h = f32[8]{0} get-tuple-element(k), index=1\n  m = f32[8]{0} tanh(p), control-predecessors={l, h}",
    ),
)
right(
    "a call on the main thread, which it says",
    edited(
        WAITING,
        (
            "ROOT r = (f32[8]{0}, f32[8]{0}) tuple(a, b) }",
            'ROOT r = (f32[8]{0}, f32[8]{0}) tuple(a, b) }, execution_thread="main"',
        ),
    ),
    ('}, execution_thread="main"', "}"),
)

NOTHING = """\
HloModule m

ENTRY e {
  p = f32[8]{0} parameter(0)
  t = () tuple()
  n = f32[8]{0} negate(p)
  y = f32[8]{0} abs(n)
  z = f32[8]{0} sine(p), control-predecessors={y}
  ROOT r = (f32[8]{0}, f32[8]{0}) tuple(y, z)
}
"""
right("waiting for nothing", NOTHING, ("control-predecessors={y}", "control-predecessors={y, t}"))
right(
    "an order that an operand of what is waited for implies",
    NOTHING,
    ("control-predecessors={y}", "control-predecessors={y, n}"),
)
right(
    "waiting for nothing at all",
    edited(NOTHING, ("sine(p), control-predecessors={y}", "sine(p)")),
    ("sine(p)", "sine(p), control-predecessors={t}"),
)

DRAWS_AND_WAITS = """\
HloModule m

both { p = f32[8]{0} parameter(0) z = f32[] constant(0) d = f32[8]{0} rng(z, z), distribution=rng_uniform n = f32[8]{0} negate(p) ROOT s = f32[8]{0} sine(p), control-predecessors={n} }
never { p = f32[8]{0} parameter(0) ROOT r = pred[] constant(false) }

ENTRY e {
  p = f32[8]{0} parameter(0)
  w = f32[8]{0} while(p), condition=never, body=both
  ROOT r = f32[8]{0} negate(p)
}
"""
wrong(
    "a loop that draws and then waits lost",
    DRAWS_AND_WAITS,
    ("  w = f32[8]{0} while(p), condition=never, body=both\n", ""),
)
