"""Rewrites of modules: wrong ones, which the proof must refuse, and right ones, which it must accept.

A row is what the rewrite does, the module before, and edits of its text: pairs of an old piece, which stands there
once, and a new one. A row that needs a module of its own writes it out.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Rewrite:
    """What is done, and both texts."""

    what: str
    before: str
    after: str


WRONG: list[Rewrite] = []
RIGHT: list[Rewrite] = []


def edited(text: str, *edits: tuple[str, str]) -> str:
    for old, new in edits:
        assert text.count(old) == 1, f"{old!r} stands {text.count(old)} times in\n{text}"
        text = text.replace(old, new)
    return text


def wrong(what: str, before: str, *edits: tuple[str, str]) -> None:
    WRONG.append(Rewrite(what, before, edited(before, *edits)))


def right(what: str, before: str, *edits: tuple[str, str]) -> None:
    RIGHT.append(Rewrite(what, before, edited(before, *edits)))


# ---- values

VALUES = """\
HloModule m, entry_computation_layout={(f32[8]{0}, f32[8]{0}, s32[])->(f32[8]{0}, f32[8]{0}, f32[4]{0})}

sum { a = f32[] parameter(0) b = f32[] parameter(1) ROOT r = f32[] add(a, b) }

ENTRY e {
  p = f32[8]{0} parameter(0)
  q = f32[8]{0} parameter(1)
  i = s32[] parameter(2)
  n = f32[8]{0} negate(p)
  s = f32[8]{0} subtract(n, q)
  x = f32[8]{0} exponential(s)
  c = pred[8]{0} compare(x, q), direction=LT
  d = f32[8]{0} select(c, x, q)
  one = f32[] constant(1)
  ones = f32[8]{0} broadcast(one), dimensions={}
  y = f32[8]{0} multiply(d, ones)
  z = f32[] constant(0)
  t = f32[] reduce(y, z), dimensions={0}, to_apply=sum
  w = f32[8]{0} broadcast(t), dimensions={}
  u = f32[4]{0} dynamic-slice(w, i), dynamic_slice_sizes={4}
  j = f32[8]{0} concatenate(u, u), dimensions={0}
  k = f32[4]{0} slice(j), slice={[2:6]}
  ROOT o = (f32[8]{0}, f32[8]{0}, f32[4]{0}) tuple(x, y, k)
}
"""
wrong("operands swapped", VALUES, ("subtract(n, q)", "subtract(q, n)"))
wrong("an operand replaced by its own operand", VALUES, ("subtract(n, q)", "subtract(p, q)"))
wrong("an operand replaced by another of the same shape", VALUES, ("exponential(s)", "exponential(n)"))
wrong("one operand twice", VALUES, ("subtract(n, q)", "subtract(n, n)"))
wrong("another operation", VALUES, ("exponential(s)", "exponential-minus-one(s)"))
wrong("another operation that commutes", VALUES, ("multiply(d, ones)", "add(d, ones)"))
wrong("the first factor squared", VALUES, ("multiply(d, ones)", "multiply(d, d)"))
wrong("the second factor squared", VALUES, ("multiply(d, ones)", "multiply(ones, ones)"))
wrong("another direction", VALUES, ("direction=LT", "direction=LE"))
wrong("the opposite direction", VALUES, ("direction=LT", "direction=GT"))
wrong("compared as a total order", VALUES, ("direction=LT", "direction=LT, type=TOTALORDER"))
wrong("compared the other way round, with the same direction", VALUES, ("compare(x, q)", "compare(q, x)"))
wrong("choices of a select swapped", VALUES, ("select(c, x, q)", "select(c, q, x)"))
wrong("a select gone", VALUES, ("multiply(d, ones)", "multiply(x, ones)"))
wrong("an identity removed", VALUES, ("tuple(x, y, k)", "tuple(x, d, k)"))
wrong("outputs swapped", VALUES, ("tuple(x, y, k)", "tuple(y, x, k)"))
wrong("an output twice", VALUES, ("tuple(x, y, k)", "tuple(x, x, k)"))
wrong("another constant", VALUES, ("one = f32[] constant(1)", "one = f32[] constant(2)"))
wrong("a constant by the smallest step", VALUES, ("one = f32[] constant(1)", "one = f32[] constant(1.00000012)"))
wrong("negative zero", VALUES, ("z = f32[] constant(0)", "z = f32[] constant(-0)"))
wrong("a NaN", VALUES, ("z = f32[] constant(0)", "z = f32[] constant(nan)"))
wrong("an infinity", VALUES, ("z = f32[] constant(0)", "z = f32[] constant(-inf)"))
wrong("another initial value", VALUES, ("reduce(y, z)", "reduce(y, one)"))
wrong("another reducer", VALUES, ("add(a, b)", "maximum(a, b)"))
wrong("a reducer that takes one argument twice", VALUES, ("add(a, b)", "add(a, a)"))
wrong(
    "a reducer that gives its argument",
    VALUES,
    ("ROOT r = f32[] add(a, b)", "r = f32[] add(a, b) ROOT h = f32[] copy(a)"),
)
wrong("another value reduced", VALUES, ("reduce(y, z)", "reduce(d, z)"))
wrong("another place in a slice", VALUES, ("{[2:6]}", "{[3:7]}"))
wrong("a stride of another slice", VALUES, ("{[2:6]}", "{[0:8:2]}"))
wrong(
    "another start", VALUES, ("dynamic-slice(w, i)", "dynamic-slice(w, g)"), ("  w = ", "  g = s32[] negate(i)\n  w = ")
)
wrong(
    "what is concatenated",
    VALUES,
    ("concatenate(u, u)", "concatenate(u, v)"),
    ("  j = ", "  v = f32[4]{0} negate(u)\n  j = "),
)
wrong(
    "rounded on the way",
    VALUES,
    ("exponential(s)", "exponential(l)"),
    ("  x = ", "  h = bf16[8]{0} convert(s)\n  l = f32[8]{0} convert(h)\n  x = "),
)
wrong(
    "negated twice",
    VALUES,
    ("exponential(s)", "exponential(l)"),
    ("  x = ", "  h = f32[8]{0} negate(s)\n  l = f32[8]{0} negate(h)\n  x = "),
)
wrong(
    "a barrier added",
    VALUES,
    ("exponential(s)", "exponential(l)"),
    ("  x = ", "  l = f32[8]{0} opt-barrier(s)\n  x = "),
)
wrong("another parameter", VALUES, ("negate(p)", "negate(q)"))
wrong(
    "parameters that change places",
    VALUES,
    ("p = f32[8]{0} parameter(0)", "p = f32[8]{0} parameter(1)"),
    ("q = f32[8]{0} parameter(1)", "q = f32[8]{0} parameter(0)"),
)
wrong("a result accuracy", VALUES, ("exponential(s)", "exponential(s), result_accuracy={mode=highest}"))
wrong("a sum that is taken apart", VALUES, ("multiply(d, ones)", "subtract(d, ones)"))
right("commuted", VALUES, ("multiply(d, ones)", "multiply(ones, d)"))
right("a reducer commuted", VALUES, ("add(a, b)", "add(b, a)"))
right(
    "a value computed twice",
    VALUES,
    ("compare(x, q)", "compare(x2, q)"),
    ("  c = ", "  x2 = f32[8]{0} exponential(s)\n  c = "),
)
right("something that nobody needs", VALUES, ("  c = ", "  x2 = f32[8]{0} tanh(s)\n  c = "))
right(
    "another place in the text",
    VALUES,
    ("  one = f32[] constant(1)\n", ""),
    ("  n = ", "  one = f32[] constant(1)\n  n = "),
)
right("another spelling of a constant", VALUES, ("one = f32[] constant(1)", "one = f32[] constant(1.0)"))
right("metadata", VALUES, ("exponential(s)", 'exponential(s), metadata={op_name="x"}'))
right(
    "a configuration of an operation that has none to read",
    VALUES,
    ("exponential(s)", 'exponential(s), backend_config="x"'),
)
right(
    "hints for other passes",
    VALUES,
    ("exponential(s)", 'exponential(s), frontend_attributes={a="b"}, sharding={replicated}'),
)
right(
    "a concatenate taken apart",
    VALUES,
    ("concatenate(u, u)", "concatenate(v, u)"),
    ("  j = ", "  v = f32[4]{0} concatenate(u), dimensions={0}\n  j = "),
)
right(
    "a tuple built and taken apart",
    VALUES,
    ("exponential(s)", "exponential(l)"),
    ("  x = ", "  h = (f32[8]{0}, f32[8]{0}) tuple(q, s)\n  l = f32[8]{0} get-tuple-element(h), index=1\n  x = "),
)
wrong(
    "the wrong element of a tuple",
    VALUES,
    ("exponential(s)", "exponential(l)"),
    ("  x = ", "  h = (f32[8]{0}, f32[8]{0}) tuple(q, s)\n  l = f32[8]{0} get-tuple-element(h), index=0\n  x = "),
)

SQUARES = """\
HloModule m

ENTRY e {
  p = f32[2,2]{1,0} parameter(0)
  c = f32[4,2]{1,0} concatenate(p, p), dimensions={0}
  ROOT r = f32[8]{0} reshape(c)
}
"""
wrong(
    "the dimension of a concatenate",
    SQUARES,
    ("c = f32[4,2]{1,0} concatenate(p, p), dimensions={0}", "c = f32[2,4]{1,0} concatenate(p, p), dimensions={1}"),
)
wrong(
    "the dimension of a concatenate in a concatenate",
    edited(
        SQUARES,
        ("  ROOT", "  d = f32[8,2]{1,0} concatenate(c, c), dimensions={0}\n  ROOT"),
        ("8]{0} reshape(c)", "16]{0} reshape(d)"),
    ),
    ("f32[8,2]{1,0} concatenate(c, c), dimensions={0}", "f32[4,4]{1,0} concatenate(c, c), dimensions={1}"),
)

# ---- constants

CONSTANTS = f"""\
HloModule m

ENTRY e {{
  small = s32[4]{{0}} constant({{1, 2, 3, 4}})
  large = f32[1500]{{0}} constant({{{", ".join(str(n) for n in range(1500))}}})
  square = s32[2,2]{{1,0}} constant({{ {{1, 2}}, {{3, 4}} }})
  pair = (s32[], f32[]) constant((1, 2.5))
  truth = pred[] constant(true)
  ROOT t = (s32[4]{{0}}, f32[1500]{{0}}, s32[2,2]{{1,0}}, (s32[], f32[]), pred[]) tuple(small, large, square, pair, truth)
}}
"""
wrong("an element of a small constant", CONSTANTS, ("{1, 2, 3, 4}", "{1, 2, 3, 5}"))
wrong("the order in a small constant", CONSTANTS, ("{1, 2, 3, 4}", "{4, 3, 2, 1}"))
wrong("the last element of a large constant", CONSTANTS, (", 1499}", ", 1498}"))
wrong("the first element of a large constant", CONSTANTS, ("constant({0, 1, 2, 3", "constant({1, 1, 2, 3"))
wrong("a sign in a large constant", CONSTANTS, (", 1000,", ", -1000,"))
wrong("a constant transposed", CONSTANTS, ("{ {1, 2}, {3, 4} }", "{ {1, 3}, {2, 4} }"))
wrong("an array in a tuple", CONSTANTS, ("(1, 2.5)", "(1, 2.25)"))
wrong("the first of a tuple", CONSTANTS, ("(1, 2.5)", "(2, 2.5)"))
wrong("a truth", CONSTANTS, ("constant(true)", "constant(false)"))
wrong(
    "the same numbers in another type",
    CONSTANTS,
    ("small = s32[4]{0}", "small = u32[4]{0}"),
    ("(s32[4]{0}, f32", "(u32[4]{0}, f32"),
)
TURNED = edited(
    CONSTANTS,
    ("square = s32[2,2]{1,0} constant", "h = s32[2,2]{1,0} constant"),
    ("  pair = ", "  square = s32[2,2]{1,0} negate(h)\n  pair = "),
)
right("a small constant in another layout", TURNED, ("h = s32[2,2]{1,0} constant", "h = s32[2,2]{0,1} constant"))
right("another spelling in a small constant", CONSTANTS, ("{1, 2, 3, 4}", "{1,2,3,4}"))
ELIDED = "HloModule m\n\nENTRY e {\n  ROOT c = f32[2000]{0} constant({...})\n}\n"
"""Nobody knows whether two constants that were left out are equal, so that a module is not even itself once it is read
again."""

# ---- layouts and shapes

LAYOUTS = """\
HloModule m, entry_computation_layout={(f32[4,6]{1,0}, f32[8]{0})->(f32[24]{0}, f32[6,4]{1,0}, f32[8]{0})}

ENTRY e {
  p = f32[4,6]{1,0} parameter(0)
  v = f32[8]{0} parameter(1)
  n = f32[4,6]{1,0} negate(p)
  b = f32[24]{0} bitcast(n)
  t = f32[6,4]{0,1} transpose(n), dimensions={1,0}
  c = f32[6,4]{1,0} copy(t)
  s = s32[8]{0} bitcast-convert(v)
  f = f32[8]{0} bitcast-convert(s)
  g = f32[8]{0} custom-call(f, n), custom_call_target="f", operand_layout_constraints={f32[8]{0}, f32[4,6]{1,0}}
  ROOT r = (f32[24]{0}, f32[6,4]{1,0}, f32[8]{0}) tuple(b, c, g)
}
"""
wrong("a bitcast of another layout", LAYOUTS, ("n = f32[4,6]{1,0} negate", "n = f32[4,6]{0,1} negate"))
wrong(
    "a bitcast to another shape",
    LAYOUTS,
    ("bitcast(n)", "bitcast(h)"),
    ("  b = ", "  h = f32[6,4]{1,0} bitcast(n)\n  b = "),
)
wrong(
    "a bitcast instead of a reshape",
    edited(LAYOUTS, ("24]{0} bitcast", "24]{0} reshape")),
    ("24]{0} reshape", "24]{0} bitcast"),
)
wrong("a reshape instead of a bitcast", LAYOUTS, ("24]{0} bitcast", "24]{0} reshape"))
wrong(
    "a bitcast instead of a transpose",
    LAYOUTS,
    ("f32[6,4]{0,1} transpose(n), dimensions={1,0}", "f32[6,4]{0,1} bitcast(n)"),
)
wrong(
    "a bitcast to another layout",
    edited(LAYOUTS, ("transpose(n)", "transpose(h)"), ("  t = ", "  h = f32[4,6]{1,0} bitcast(p)\n  t = ")),
    ("h = f32[4,6]{1,0}", "h = f32[4,6]{0,1}"),
)
wrong("dimensions of a transpose", LAYOUTS, ("dimensions={1,0}", "dimensions={0,1}"))
wrong("bits read as another type", LAYOUTS, ("s = s32[8]{0} bitcast-convert(v)", "s = u32[8]{0} bitcast-convert(v)"))
wrong("bits converted", LAYOUTS, ("s = s32[8]{0} bitcast-convert", "s = s32[8]{0} convert"))
wrong(
    "a layout that a custom call reads",
    LAYOUTS,
    ("custom-call(f, n)", "custom-call(f, h)"),
    ("  g = ", "  h = f32[4,6]{0,1} negate(p)\n  g = "),
)
wrong("a layout that a custom call promises", LAYOUTS, ("f32[8]{0}, f32[4,6]{1,0}}", "f32[8]{0}, f32[4,6]{0,1}}"))
wrong("the layout of an entry parameter", LAYOUTS, ("p = f32[4,6]{1,0}", "p = f32[4,6]{0,1}"))
wrong("tiles of an entry parameter", LAYOUTS, ("p = f32[4,6]{1,0}", "p = f32[4,6]{1,0:T(8,128)}"))
wrong("the memory of an entry parameter", LAYOUTS, ("v = f32[8]{0}", "v = f32[8]{0:S(5)}"))
wrong("the layout of an entry parameter in the header", LAYOUTS, ("{(f32[4,6]{1,0}, ", "{(f32[4,6]{0,1}, "))
wrong("the layout of a result in the header", LAYOUTS, ("->(f32[24]{0}, f32[6,4]{1,0}", "->(f32[24]{0}, f32[6,4]{0,1}"))
wrong(
    "the layout of a result",
    LAYOUTS,
    ("c = f32[6,4]{1,0} copy", "c = f32[6,4]{0,1} copy"),
    ("(f32[24]{0}, f32[6,4]{1,0}, f32[8]{0}) tuple", "(f32[24]{0}, f32[6,4]{0,1}, f32[8]{0}) tuple"),
)
wrong("a copy that a result needs", LAYOUTS, ("tuple(b, c, g)", "tuple(b, t, g)"))
wrong("a tuple of another layout than what is in it", LAYOUTS, ("c = f32[6,4]{1,0} copy", "c = f32[6,4]{0,1} copy"))
wrong("a dimension that may be shorter", LAYOUTS, ("f = f32[8]{0}", "f = f32[<=8]{0}"))
wrong(
    "an element of another layout than its tuple",
    LAYOUTS,
    ("bitcast(n)", "bitcast(h)"),
    (
        "  b = ",
        "  k = (f32[4,6]{0,1}, f32[8]{0}) tuple(n, v)\n  h = f32[4,6]{1,0} get-tuple-element(k), index=0\n  b = ",
    ),
)
right("a layout that nobody reads", LAYOUTS, ("t = f32[6,4]{0,1} transpose", "t = f32[6,4]{1,0} transpose"))
right(
    "row-major written out",
    edited(LAYOUTS, ("n = f32[4,6]{1,0}", "n = f32[4,6]")),
    ("n = f32[4,6]", "n = f32[4,6]{1,0}"),
)

wrong(
    "an element of another layout than where it comes from",
    LAYOUTS,
    ("transpose(n)", "transpose(h)"),
    (
        "  b = ",
        "  k = (f32[4,6]{1,0}, f32[8]{0}) tuple(n, v)\n  h = f32[4,6]{0,1} get-tuple-element(k), index=0\n  b = ",
    ),
)

# ---- the header and what the caller sees

HEADER = """\
HloModule m, is_scheduled=true, input_output_alias={ {0}: (0, {}, may-alias) }, buffer_donor={ (1, {}) }, entry_computation_layout={(f32[8]{0}, f32[8]{0})->(f32[8]{0}, f32[8]{0})}, replica_count=1, num_partitions=2

ENTRY e {
  p = f32[8]{0} parameter(0), sharding={devices=[2]<=[2]}
  q = f32[8]{0} parameter(1), parameter_replication={false}
  n = f32[8]{0} negate(p)
  m = f32[8]{0} add(n, q)
  ROOT r = (f32[8]{0}, f32[8]{0}) tuple(n, m)
}
"""
wrong("an alias of another output", HEADER, ("{ {0}: (0", "{ {1}: (0"))
wrong("an alias of another parameter", HEADER, ("(0, {}, may-alias)", "(1, {}, may-alias)"), ("(1, {}) }", "(0, {}) }"))
wrong("an alias that must be", HEADER, ("may-alias", "must-alias"))
wrong("an alias lost", HEADER, ("input_output_alias={ {0}: (0, {}, may-alias) }, ", ""))
wrong("a donor lost", HEADER, ("buffer_donor={ (1, {}) }, ", ""))
wrong(
    "another donor",
    edited(HEADER, ("input_output_alias={ {0}: (0, {}, may-alias) }, ", "")),
    ("(1, {}) }", "(0, {}) }"),
)
wrong(
    "a donor added",
    edited(HEADER, ("buffer_donor={ (1, {}) }, ", "")),
    ("may-alias) }, ", "may-alias) }, buffer_donor={ (1, {}) }, "),
)
wrong("more partitions", HEADER, ("num_partitions=2", "num_partitions=4"))
wrong("more replicas", HEADER, ("replica_count=1", "replica_count=2"))
wrong(
    "a schedule claimed", edited(HEADER, (", is_scheduled=true", "")), ("HloModule m", "HloModule m, is_scheduled=true")
)
wrong(
    "a layout lost in the header",
    HEADER,
    (", entry_computation_layout={(f32[8]{0}, f32[8]{0})->(f32[8]{0}, f32[8]{0})}", ""),
)
wrong("a parameter cut in another way", HEADER, ("sharding={devices=[2]<=[2]}", "sharding={replicated}"))
wrong("a parameter that is no longer cut", HEADER, (", sharding={devices=[2]<=[2]}", ""))
wrong(
    "a parameter said to be equal everywhere", HEADER, ("parameter_replication={false}", "parameter_replication={true}")
)
wrong("one output", HEADER, ("ROOT r = (f32[8]{0}, f32[8]{0}) tuple(n, m)", "ROOT r = (f32[8]{0}) tuple(n)"))
wrong(
    "an output more",
    HEADER,
    ("ROOT r = (f32[8]{0}, f32[8]{0}) tuple(n, m)", "ROOT r = (f32[8]{0}, f32[8]{0}, f32[8]{0}) tuple(n, m, m)"),
)
wrong("a parameter more", HEADER, ("  n = ", "  x = f32[8]{0} parameter(2)\n  n = "))
wrong(
    "a tuple in a tuple",
    HEADER,
    (
        "ROOT r = (f32[8]{0}, f32[8]{0}) tuple(n, m)",
        "r = (f32[8]{0}, f32[8]{0}) tuple(n, m)\n  ROOT o = ((f32[8]{0}, f32[8]{0})) tuple(r)",
    ),
)
wrong(
    "another element type",
    HEADER,
    (
        "q = f32[8]{0} parameter(1), parameter_replication={false}",
        "q = s32[8]{0} parameter(1), parameter_replication={false}",
    ),
)
wrong("settings of the front end", HEADER, ("num_partitions=2", 'num_partitions=2, frontend_attributes={a="b"}'))
right("a schedule that is no longer one", HEADER, (", is_scheduled=true", ""))
right("another name", HEADER, ("HloModule m", "HloModule other"))

# ---- called computations

CALLS = """\
HloModule m

first { a = f32[8]{0} parameter(0) b = f32[8]{0} parameter(1) n = f32[8]{0} negate(a) ROOT r = f32[8]{0} subtract(n, b) }
both { c = f32[8]{0} parameter(0) x = f32[8]{0} sine(c) y = f32[8]{0} cosine(c) ROOT r = (f32[8]{0}, f32[8]{0}) tuple(x, y) }
cond { s = (s32[], f32[8]{0}) parameter(0) i = s32[] get-tuple-element(s), index=0 k = s32[] constant(9) ROOT l = pred[] compare(i, k), direction=LT }
body {
  s = (s32[], f32[8]{0}) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  v = f32[8]{0} get-tuple-element(s), index=1
  o = s32[] constant(1)
  j = s32[] add(i, o)
  w = f32[8]{0} tanh(v)
  ROOT t = (s32[], f32[8]{0}) tuple(j, w)
}
yes { g = f32[8]{0} parameter(0) ROOT r = f32[8]{0} ceil(g) }
no { h = f32[8]{0} parameter(0) ROOT r = f32[8]{0} floor(h) }
less { u = f32[] parameter(0) v = f32[] parameter(1) ROOT r = pred[] compare(u, v), direction=LT }

ENTRY e {
  p = f32[8]{0} parameter(0)
  q = f32[8]{0} parameter(1)
  choice = pred[] parameter(2)
  number = s32[] parameter(3)
  f = f32[8]{0} fusion(p, q), kind=kLoop, calls=first
  g = (f32[8]{0}, f32[8]{0}) fusion(f), kind=kLoop, calls=both
  g0 = f32[8]{0} get-tuple-element(g), index=0
  g1 = f32[8]{0} get-tuple-element(g), index=1
  c = f32[8]{0} call(g0, g1), to_apply=first
  z = s32[] constant(0)
  t = (s32[], f32[8]{0}) tuple(z, c)
  loop = (s32[], f32[8]{0}) while(t), condition=cond, body=body
  l = f32[8]{0} get-tuple-element(loop), index=1
  d = f32[8]{0} conditional(choice, l, q), true_computation=yes, false_computation=no
  k = f32[8]{0} conditional(number, d, l), branch_computations={yes, no}
  ROOT s = f32[8]{0} sort(k), dimensions={0}, to_apply=less, is_stable=true
}
"""
wrong("operands of a fusion swapped", CALLS, ("fusion(p, q)", "fusion(q, p)"))
wrong("operands of a call swapped", CALLS, ("call(g0, g1)", "call(g1, g0)"))
wrong(
    "parameters of a fusion swapped",
    CALLS,
    ("a = f32[8]{0} parameter(0) b = f32[8]{0} parameter(1)", "a = f32[8]{0} parameter(1) b = f32[8]{0} parameter(0)"),
)
wrong("another body of a call", CALLS, ("call(g0, g1), to_apply=first", "call(g0), to_apply=yes"))
wrong("inside a fusion", CALLS, ("subtract(n, b)", "subtract(b, n)"))
wrong("outputs of a fusion swapped inside", CALLS, ("tuple(x, y)", "tuple(y, x)"))
wrong(
    "outputs of a fusion swapped outside",
    CALLS,
    ("g0 = f32[8]{0} get-tuple-element(g), index=0", "g0 = f32[8]{0} get-tuple-element(g), index=1"),
)
wrong("another number of rounds", CALLS, ("k = s32[] constant(9)", "k = s32[] constant(8)"))
wrong("another condition", CALLS, ("compare(i, k), direction=LT", "compare(i, k), direction=LE"))
wrong("another step", CALLS, ("o = s32[] constant(1)", "o = s32[] constant(2)"))
wrong("inside a loop", CALLS, ("tanh(v)", "tan(v)"))
wrong("a value that a loop carries unchanged", CALLS, ("tuple(j, w)", "tuple(j, v)"))
wrong("another start of a loop", CALLS, ("z = s32[] constant(0)", "z = s32[] constant(1)"))
wrong("another value into a loop", CALLS, ("tuple(z, c)", "tuple(z, f)"))
wrong("a loop left out", CALLS, ("conditional(choice, l, q)", "conditional(choice, c, q)"))
wrong(
    "branches swapped",
    CALLS,
    ("true_computation=yes, false_computation=no", "true_computation=no, false_computation=yes"),
)
wrong(
    "one branch for both",
    CALLS,
    ("true_computation=yes, false_computation=no", "true_computation=yes, false_computation=yes"),
)
wrong("numbered branches swapped", CALLS, ("{yes, no}", "{no, yes}"))
wrong(
    "a branch more",
    CALLS,
    (
        "conditional(number, d, l), branch_computations={yes, no}",
        "conditional(number, d, l, l), branch_computations={yes, no, no}",
    ),
)
wrong("arguments of branches swapped", CALLS, ("conditional(choice, l, q)", "conditional(choice, q, l)"))
wrong("the other order of a sort", CALLS, ("compare(u, v), direction=LT", "compare(u, v), direction=GT"))
wrong("arguments of a comparator swapped", CALLS, ("compare(u, v), direction=LT", "compare(v, u), direction=LT"))
wrong("equal elements in any order", CALLS, (", is_stable=true", ""))
wrong(
    "a fusion whose parameter lies in another way",
    CALLS,
    ("a = f32[8]{0} parameter(0)", "a = f32[8]{0:S(5)} parameter(0)"),
)
wrong(
    "a fusion whose result lies in another way",
    CALLS,
    ("ROOT r = f32[8]{0} subtract", "ROOT r = f32[8]{0:S(5)} subtract"),
)
wrong(
    "a loop whose body takes another layout",
    CALLS,
    ("body {\n  s = (s32[], f32[8]{0})", "body {\n  s = (s32[], f32[8]{0:S(5)})"),
)
wrong(
    "a loop whose body gives another layout",
    CALLS,
    ("ROOT t = (s32[], f32[8]{0}) tuple(j", "ROOT t = (s32[], f32[8]{0:S(5)}) tuple(j"),
)
wrong(
    "a loop whose condition takes another layout",
    CALLS,
    ("cond { s = (s32[], f32[8]{0})", "cond { s = (s32[], f32[8]{0:S(5)})"),
)
wrong(
    "a branch that takes another layout", CALLS, ("no { h = f32[8]{0} parameter", "no { h = f32[8]{0:S(5)} parameter")
)
wrong("a branch that gives another layout", CALLS, ("ROOT r = f32[8]{0} floor", "ROOT r = f32[8]{0:S(5)} floor"))
wrong(
    "a call on another thread",
    CALLS,
    ("c = f32[8]{0} call(g0, g1), to_apply=first", "c = f32[8]{0} call(g0, g1), to_apply=apart"),
    (
        "cond {",
        "apart { a = f32[8]{0} parameter(0) b = f32[8]{0} parameter(1) n = f32[8]{0} negate(a) ROOT r = f32[8]{0} "
        'subtract(n, b) }, execution_thread="other"\ncond {',
    ),
)
right(
    "a call put in",
    CALLS,
    ("c = f32[8]{0} call(g0, g1), to_apply=first", "n = f32[8]{0} negate(g0)\n  c = f32[8]{0} subtract(n, g1)"),
)
right(
    "a fusion put in",
    CALLS,
    ("f = f32[8]{0} fusion(p, q), kind=kLoop, calls=first", "n = f32[8]{0} negate(p)\n  f = f32[8]{0} subtract(n, q)"),
)
right("a fusion of another kind", CALLS, ("fusion(p, q), kind=kLoop", "fusion(p, q), kind=kInput"))
right(
    "a kernel of several outputs cut in two",
    CALLS,
    ("g0 = f32[8]{0} get-tuple-element(g), index=0", "g0 = f32[8]{0} sine(f)"),
)
right("a fusion instead of a call", CALLS, ("call(g0, g1), to_apply=first", "fusion(g0, g1), kind=kLoop, calls=first"))
right(
    "parameters of a fusion and its operands, both swapped",
    edited(
        CALLS,
        ("c = f32[8]{0} call(g0, g1), to_apply=first", "n = f32[8]{0} negate(g0)\n  c = f32[8]{0} subtract(n, g1)"),
    ),
    ("fusion(p, q)", "fusion(q, p)"),
    ("a = f32[8]{0} parameter(0) b = f32[8]{0} parameter(1)", "a = f32[8]{0} parameter(1) b = f32[8]{0} parameter(0)"),
)
right("attributes in another order", CALLS, ("condition=cond, body=body", "body=body, condition=cond"))
right(
    "something dead in a loop", CALLS, ("  w = f32[8]{0} tanh(v)", "  w = f32[8]{0} tanh(v)\n  x = f32[8]{0} sine(v)")
)
right(
    "a fusion in a loop",
    CALLS,
    ("  w = f32[8]{0} tanh(v)", "  w = f32[8]{0} fusion(v), kind=kLoop, calls=tanhs"),
    ("body {", "tanhs { a = f32[8]{0} parameter(0) ROOT r = f32[8]{0} tanh(a) }\nbody {"),
)
right(
    "a fusion of everything before the loop",
    CALLS,
    ("c = f32[8]{0} call(g0, g1), to_apply=first", "c = f32[8]{0} fusion(f), kind=kLoop, calls=whole"),
    (
        "cond {",
        "whole { a = f32[8]{0} parameter(0) x = f32[8]{0} sine(a) y = f32[8]{0} cosine(a) n = f32[8]{0} negate(x) ROOT "
        "r = f32[8]{0} subtract(n, y) }\ncond {",
    ),
)
right(
    "a branch that computes more than it needs",
    CALLS,
    ("yes { g = f32[8]{0} parameter(0)", "yes { g = f32[8]{0} parameter(0) t = f32[8]{0} tan(g)"),
)
right(
    "a comparator that names its arguments differently",
    CALLS,
    (
        "u = f32[] parameter(0) v = f32[] parameter(1) ROOT r = pred[] compare(u, v)",
        "v = f32[] parameter(1) x = f32[] parameter(0) ROOT r = pred[] compare(x, v)",
    ),
)
