"""Texts of loops for tests: a counter `x0`, the state `x1`, `x2`, ..., and the lines of a round."""

from __future__ import annotations

from collections.abc import Sequence

SUM = "sum {\n  a = f32[] parameter(0)\n  b = f32[] parameter(1)\n  ROOT c = f32[] add(a, b)\n}\n"
LESS = "less {\n  a = f32[] parameter(0)\n  b = f32[] parameter(1)\n  ROOT c = pred[] compare(a, b), direction=LT\n}\n"
BOTH = "both {\n  a = pred[] parameter(0)\n  b = pred[] parameter(1)\n  ROOT c = pred[] and(a, b)\n}\n"
EITHER = "either {\n  a = pred[] parameter(0)\n  b = pred[] parameter(1)\n  ROOT c = pred[] or(a, b)\n}\n"


def loop(
    state: Sequence[str],
    lines: Sequence[str],
    results: Sequence[str],
    *,
    rounds: int = 5,
    test: Sequence[str] = (),
    given: Sequence[str] = (),
    read: Sequence[int] = (),
) -> str:
    """A module whose entry takes the state, runs the rounds and gives what of it is `read` (1 for `x1`; all that a
    round changes).

    `lines` compute the `results`, one for each of the state; an `x` among them leaves it as it is. There are `rounds`
    rounds, or as many as the lines of `test` say, whose last is its root. `given` are lines of the entry that compute
    arguments: `g1 = ...` in the place of the parameter `p1`.
    """
    shapes = ["s32[]", *state]
    whole = f"({', '.join(shapes)})"
    taken = [
        f"t = {whole} parameter(0)",
        *(f"x{n} = {s} get-tuple-element(t), index={n}" for n, s in enumerate(shapes)),
    ]
    ends = ["n0", *results]
    body = [
        *taken,
        "one = s32[] constant(1)",
        "n0 = s32[] add(x0, one)",
        *lines,
        f"ROOT r = {whole} tuple({', '.join(ends)})",
    ]
    asked = test or [f"limit = s32[] constant({rounds})", "c = pred[] compare(x0, limit), direction=LT"]
    condition = [*taken, *asked[:-1], f"ROOT {asked[-1]}"]
    made = {line.split(" ")[0] for line in given}
    parameters = [n for n in range(1, len(shapes)) if f"g{n}" not in made]
    entry = [f"p{n} = {shapes[n]} parameter({k})" for k, n in enumerate(parameters)]
    names = ["z", *(f"g{n}" if f"g{n}" in made else f"p{n}" for n in range(1, len(shapes)))]
    numbers = list(read) or [n for n, end in enumerate(ends) if n and end != f"x{n}"]
    entry += [
        "z = s32[] constant(0)",
        *given,
        f"s = {whole} tuple({', '.join(names)})",
        f"w = {whole} while(s), condition=condition, body=body",
        *(f"r{n} = {shapes[n]} get-tuple-element(w), index={n}" for n in numbers),
        f"ROOT r = ({', '.join(shapes[n] for n in numbers)}) tuple({', '.join(f'r{n}' for n in numbers)})",
    ]
    parts = [("body", body), ("condition", condition), ("ENTRY e", entry)]
    written = "\n".join(f"{name} {{\n" + "".join(f"  {line}\n" for line in of) + "}\n" for name, of in parts)
    return f"HloModule m\n\n{SUM}\n{LESS}\n{EITHER}\n{BOTH}\n{written}"


HALVED = ("h = f32[] constant(0.5)", "hs = f32[64] broadcast(h), dimensions={}", "y = f32[64] multiply(x1, hs)")

LIMIT = (
    "m = f32[] constant(0.01)",
    "ms = f32[64] broadcast(m), dimensions={}",
    "g = pred[64] compare(x1, ms), direction=GT",
)
"""Which lanes are above a limit."""
ANY = ("no = pred[] constant(false)", "c = pred[] reduce(g, no), dimensions={0}, to_apply=either")
"""As long as one is."""
COUNTED = ("k = s32[64] convert(g)", "n = s32[64] add(x2, k)")
"""How often each was."""

LANES: dict[str, tuple[str, tuple[int, ...]]] = {
    "lanes that end by themselves": (
        loop(
            ["f32[64]", "s32[64]"],
            [*LIMIT, *HALVED[:2], *COUNTED, "v = f32[64] multiply(x1, hs)", "y = f32[64] select(g, v, x1)"],
            ["y", "n"],
            test=[*LIMIT, *ANY],
        ),
        (64,),
    ),
    "lanes that are done, and a last round for all": (
        loop(
            ["f32[64,2]", "pred[64]"],
            [
                "d = pred[64,2] broadcast(x2), dimensions={0}",
                *HALVED[:1],
                "hs = f32[64,2] broadcast(h), dimensions={}",
                "s = f32[64,2] multiply(x1, hs)",
                "y = f32[64,2] select(d, x1, s)",
                "e = f32[64,1] slice(y), slice={[0:64], [0:1]}",
                "f = f32[64] reshape(e)",
                "l = f32[] constant(0.25)",
                "ls = f32[64] broadcast(l), dimensions={}",
                "u = pred[64] compare(f, ls), direction=LT",
                "o = pred[64] or(x2, u)",
            ],
            ["y", "o"],
            test=[
                "yes = pred[] constant(true)",
                "a = pred[] reduce(x2, yes), dimensions={0}, to_apply=both",
                "na = pred[] not(a)",
                "most = s32[] constant(9)",
                "i = pred[] compare(x0, most), direction=LT",
                "c = pred[] and(na, i)",
            ],
        ),
        (64,),
    ),
    "one array": (loop(["f32[64]"], HALVED, ["y"]), (64,)),
    "joined state": (
        loop(
            ["f32[64,2]"],
            [
                "left = f32[64,1] slice(x1), slice={[0:64], [0:1]}",
                "right = f32[64,1] slice(x1), slice={[0:64], [1:2]}",
                "both = f32[64,1] add(left, right)",
                "y = f32[64,2] concatenate(right, both), dimensions={1}",
            ],
            ["y"],
        ),
        (64,),
    ),
    "lanes behind": (
        loop(["f32[2,64]"], ["y = f32[2,64] reverse(x1), dimensions={0}"], ["y"]),
        (64,),
    ),
    "two dimensions": (
        loop(
            ["f32[12,8]{0,1}", "f32[12,8]"],
            ["c = f32[12,8] copy(x1)", "y = f32[12,8] add(c, x2)", "k = f32[12,8]{0,1} copy(x2)"],
            ["k", "y"],
        ),
        (12, 8),
    ),
    "a table that no round changes": (
        loop(
            ["s32[64]", "s32[9]"],
            [
                "k = s32[] constant(9)",
                "ks = s32[64] broadcast(k), dimensions={}",
                "m = s32[64] remainder(x1, ks)",
                "a = s32[64] abs(m)",
                "f = s32[64] gather(x2, a), offset_dims={}, collapsed_slice_dims={0}, start_index_map={0}, "
                "index_vector_dim=1, slice_sizes={1}",
                "y = s32[64] add(x1, f)",
            ],
            ["y", "x2"],
        ),
        (64,),
    ),
    "rows that are read": (
        loop(
            ["f32[64]", "f32[5,64]"],
            [
                "o = s32[] constant(0)",
                "u = f32[1,64] dynamic-slice(x2, x0, o), dynamic_slice_sizes={1,64}",
                "v = f32[64] reshape(u)",
                "y = f32[64] add(x1, v)",
            ],
            ["y", "x2"],
        ),
        (64,),
    ),
    "results": (
        loop(
            ["f32[64]", "f32[5,64]"],
            [
                *HALVED,
                "o = s32[] constant(0)",
                "u = f32[1,64] reshape(y)",
                "d = f32[5,64] dynamic-update-slice(x2, u, x0, o)",
            ],
            ["y", "d"],
            given=["e = f32[] constant(3)", "g2 = f32[5,64] broadcast(e), dimensions={}"],
        ),
        (64,),
    ),
    "results of some rounds": (
        loop(
            ["f32[64]", "f32[5,64]"],
            [
                *HALVED,
                "o = s32[] constant(0)",
                "u = f32[1,64] reshape(y)",
                "q = s32[] constant(2)",
                "l = s32[] divide(x0, q)",
                "d = f32[5,64] dynamic-update-slice(x2, u, l, o)",
            ],
            ["y", "d"],
            given=["e = f32[] constant(3)", "g2 = f32[5,64] broadcast(e), dimensions={}"],
        ),
        (64,),
    ),
    "results that are read again": (
        loop(
            ["f32[64]", "f32[20,64]"],
            [
                "o = s32[] constant(0)",
                "v = f32[1,64] dynamic-slice(x2, o, o), dynamic_slice_sizes={1,64}",
                "u = f32[1,64] add(v, v)",
                "d = f32[20,64] dynamic-update-slice(x2, u, x0, o)",
                "f = f32[64] reshape(u)",
                "y = f32[64] add(x1, f)",
            ],
            ["y", "d"],
            given=["e = f32[] constant(3)", "g2 = f32[20,64] broadcast(e), dimensions={}"],
        ),
        (64,),
    ),
    "a fixed row of results that is read": (
        loop(
            ["f32[64]", "f32[20,64]"],
            [
                "v = f32[2,64] slice(x2), slice={[1:3], [0:64]}",
                "z = f32[] constant(0)",
                "f = f32[64] reduce(v, z), dimensions={0}, to_apply=sum",
                "y = f32[64] add(x1, f)",
                "o = s32[] constant(0)",
                "u = f32[1,64] reshape(y)",
                "d = f32[20,64] dynamic-update-slice(x2, u, x0, o)",
            ],
            ["y", "d"],
            given=["e = f32[] constant(3)", "g2 = f32[20,64] broadcast(e), dimensions={}"],
        ),
        (64,),
    ),
    "results of this round that are read": (
        loop(
            ["f32[64]", "f32[20,64]"],
            [
                *HALVED,
                "o = s32[] constant(0)",
                "u = f32[1,64] reshape(y)",
                "d = f32[20,64] dynamic-update-slice(x2, u, x0, o)",
                "l = s32[] remainder(n0, one)",
                "v = f32[1,64] dynamic-slice(d, l, o), dynamic_slice_sizes={1,64}",
                "f = f32[64] reshape(v)",
                "q = f32[64] add(y, f)",
            ],
            ["q", "d"],
            given=["e = f32[] constant(3)", "g2 = f32[20,64] broadcast(e), dimensions={}"],
        ),
        (64,),
    ),
    "a column that the round chooses": (
        loop(
            ["f32[64,6]"],
            [
                "o = s32[] constant(0)",
                "v = f32[64,1] dynamic-slice(x1, o, n0), dynamic_slice_sizes={64,1}",
                "w = f32[64,1] add(v, v)",
                "y = f32[64,6] dynamic-update-slice(x1, w, o, x0)",
            ],
            ["y"],
            rounds=9,
        ),
        (64,),
    ),
    "a row that each lane chooses, and an element that it changes": (
        loop(
            ["f32[40,5,3]", "s32[40]"],
            [
                "k = s32[] constant(7)",
                "ks = s32[40] broadcast(k), dimensions={}",
                "m = s32[40] remainder(x2, ks)",
                "v = s32[40,1] reshape(m)",
                "g = f32[40,3] gather(x1, v), offset_dims={1}, collapsed_slice_dims={1}, start_index_map={1}, "
                "operand_batching_dims={0}, start_indices_batching_dims={0}, index_vector_dim=1, slice_sizes={1,1,3}",
                "z = f32[] constant(0)",
                "e = f32[40] reduce(g, z), dimensions={1}, to_apply=sum",
                "o = s32[40] broadcast(one), dimensions={}",
                "w = s32[40,1] reshape(o)",
                "j = s32[40,2] concatenate(v, w), dimensions={1}",
                "y = f32[40,5,3] scatter(x1, j, e), update_window_dims={}, inserted_window_dims={1,2}, "
                "scatter_dims_to_operand_dims={1,2}, input_batching_dims={0}, scatter_indices_batching_dims={0}, "
                "index_vector_dim=1, to_apply=sum",
                "n = s32[40] add(x2, o)",
            ],
            ["y", "n"],
        ),
        (40,),
    ),
    "a key for all": (
        loop(
            ["u32[2]", "u32[64]"],
            [
                "k = u32[1] slice(x1), slice={[0:1]}",
                "l = u32[1] slice(x1), slice={[1:2]}",
                "m = u32[1] xor(k, l)",
                "j = u32[2] concatenate(l, m), dimensions={0}",
                "e = u32[] reshape(m)",
                "es = u32[64] broadcast(e), dimensions={}",
                "y = u32[64] add(x2, es)",
            ],
            ["j", "y"],
        ),
        (64,),
    ),
    "rounds that a value ends": (
        loop(
            ["f32[64]", "f32[]"],
            [*HALVED, "d = f32[] constant(1.5)", "e = f32[] add(x2, d)"],
            ["y", "e"],
            test=["m = f32[] constant(9)", "c = pred[] compare(x2, m), direction=LT"],
            given=["g2 = f32[] constant(0)"],
        ),
        (64,),
    ),
    "products of rows": (
        loop(
            ["f32[40,3]", "f32[3,5]", "f32[5,3]"],
            [
                "a = f32[40,5] dot(x1, x2), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
                "b = f32[5,40] dot(x2, x1), lhs_contracting_dims={0}, rhs_contracting_dims={1}",
                "c = f32[40,5] transpose(b), dimensions={1,0}",
                "d = f32[40,5] maximum(a, c)",
                "y = f32[40,3] dot(d, x3), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
            ],
            ["y", "x2", "x3"],
            rounds=2,
        ),
        (40,),
    ),
    "products of rows by batches": (
        loop(
            ["bf16[40,2,3]", "bf16[40,3,2]"],
            [
                "a = bf16[40,2,2] dot(x1, x2), lhs_contracting_dims={2}, rhs_contracting_dims={1}, lhs_batch_dims={0}, "
                "rhs_batch_dims={0}",
                "y = bf16[40,2,3] dot(a, x2), lhs_contracting_dims={2}, rhs_contracting_dims={2}, lhs_batch_dims={0}, "
                "rhs_batch_dims={0}",
            ],
            ["y", "x2"],
            rounds=2,
        ),
        (40, 2),
    ),
    "sums of rows": (
        loop(
            ["f32[40,3]"],
            [
                "z = f32[] constant(0.5)",
                "s = f32[40] reduce(x1, z), dimensions={1}, to_apply=sum",
                "b = f32[40,3] broadcast(s), dimensions={0}",
                "y = f32[40,3] add(x1, b)",
            ],
            ["y"],
        ),
        (40,),
    ),
    "bf16": (loop(["bf16[64]"], ["y = bf16[64] multiply(x1, x1)"], ["y"]), (64,)),
    "predicates": (
        loop(
            ["pred[64]", "s8[64]"],
            [
                "o = s8[64] constant({...})".replace("constant({...})", "negate(x2)"),
                "c = pred[64] compare(o, x2), direction=LT",
                "y = pred[64] xor(x1, c)",
            ],
            ["y", "o"],
        ),
        (64,),
    ),
    "a counter that is read": (
        loop(
            ["f32[64]", "s32[]"],
            [*HALVED, "two = s32[] constant(2)", "n = s32[] add(x2, two)"],
            ["y", "n"],
            given=["g2 = s32[] constant(7)"],
        ),
        (64,),
    ),
}
"""Loops whose lanes do not need each other, and the sizes of the lanes' dimensions."""

COUPLED: dict[str, str] = {
    "reduction": loop(
        ["f32[64]"],
        [
            "z = f32[] constant(0)",
            "s = f32[] reduce(x1, z), dimensions={0}, to_apply=sum",
            "b = f32[64] broadcast(s), dimensions={}",
            "y = f32[64] add(x1, b)",
        ],
        ["y"],
    ),
    "reverse": loop(["f32[64]"], ["y = f32[64] reverse(x1), dimensions={0}"], ["y"]),
    "shift": loop(
        ["f32[64]"],
        [
            "a = f32[1] slice(x1), slice={[0:1]}",
            "b = f32[63] slice(x1), slice={[1:64]}",
            "y = f32[64] concatenate(b, a), dimensions={0}",
        ],
        ["y"],
    ),
    "padding": loop(
        ["f32[64]"], ["z = f32[] constant(0)", "q = f32[64] pad(x1, z), padding=1_-1", "y = f32[64] add(x1, q)"], ["y"]
    ),
    "transpose": loop(["f32[8,8]"], ["q = f32[8,8] transpose(x1), dimensions={1,0}", "y = f32[8,8] add(x1, q)"], ["y"]),
    "gather across lanes": loop(
        ["f32[64]", "s32[64]"],
        [
            "y = f32[64] gather(x1, x2), offset_dims={}, collapsed_slice_dims={0}, start_index_map={0}, "
            "index_vector_dim=1, slice_sizes={1}"
        ],
        ["y", "x2"],
    ),
    "sort": loop(["f32[64]"], ["y = f32[64] sort(x1), dimensions={0}, to_apply=less"], ["y"]),
    "product": loop(
        ["f32[8,8]"], ["y = f32[8,8] dot(x1, x1), lhs_contracting_dims={1}, rhs_contracting_dims={0}"], ["y"]
    ),
    "a scalar from an array": loop(
        ["f32[64]", "f32[]"],
        [
            "a = f32[1] slice(x1), slice={[3:4]}",
            "b = f32[] reshape(a)",
            "c = f32[] add(b, x2)",
            "d = f32[64] broadcast(x2), dimensions={}",
            "y = f32[64] add(x1, d)",
        ],
        ["y", "c"],
    ),
    "a test of all": loop(
        ["f32[64]"],
        HALVED,
        ["y"],
        test=[
            "m = f32[] constant(0.01)",
            "ms = f32[64] broadcast(m), dimensions={}",
            "g = pred[64] compare(x1, ms), direction=GT",
            "no = pred[] constant(false)",
            "c = pred[] reduce(g, no), dimensions={0}, to_apply=either",
        ],
    ),
    "a value that goes on when a lane has ended": loop(
        ["f32[64]", "s32[64]"],
        [
            *LIMIT,
            *HALVED[:2],
            "y = f32[64] multiply(x1, hs)",
            "k = s32[64] convert(g)",
            "one64 = s32[64] broadcast(one), dimensions={}",
            "n = s32[64] add(x2, one64)",
        ],
        ["y", "n"],
        test=[*LIMIT, *ANY],
    ),
    "lanes that may begin again": loop(
        ["f32[64]", "f32[]"],
        [
            "xs = f32[64] broadcast(x2), dimensions={}",
            "g = pred[64] compare(x1, xs), direction=GT",
            *HALVED[:2],
            "v = f32[64] multiply(x1, hs)",
            "y = f32[64] select(g, v, x1)",
            "e = f32[] multiply(x2, h)",
        ],
        ["y", "e"],
        test=[
            "xs = f32[64] broadcast(x2), dimensions={}",
            "g = pred[64] compare(x1, xs), direction=GT",
            "no = pred[] constant(false)",
            "q = pred[] reduce(g, no), dimensions={0}, to_apply=either",
            "most = s32[] constant(6)",
            "i = pred[] compare(x0, most), direction=LT",
            "c = pred[] and(q, i)",
        ],
        read=[1],
    ),
    "a number for all that is read": loop(
        ["f32[64]", "s32[]"],
        [*LIMIT, *HALVED[:2], "v = f32[64] multiply(x1, hs)", "y = f32[64] select(g, v, x1)", "n = s32[] add(x2, one)"],
        ["y", "n"],
        test=[*LIMIT, *ANY],
    ),
    "lanes that stay by another predicate": loop(
        ["f32[64]"],
        [
            *LIMIT,
            "e = f32[] constant(0.02)",
            "es = f32[64] broadcast(e), dimensions={}",
            "q = pred[64] compare(x1, es), direction=GT",
            *HALVED[:2],
            "v = f32[64] multiply(x1, hs)",
            "w = f32[64] select(q, x1, v)",
            "y = f32[64] select(g, v, w)",
        ],
        ["y"],
        test=[*LIMIT, *ANY],
    ),
    "lanes that change when they have ended": loop(
        ["f32[64]"],
        [*LIMIT, *HALVED[:2], "v = f32[64] multiply(x1, hs)", "y = f32[64] select(g, v, v)"],
        ["y"],
        test=[*LIMIT, *ANY],
    ),
    "rows of all lanes until the last has ended": loop(
        ["f32[64]", "f32[40,64]"],
        [
            *LIMIT,
            *HALVED[:2],
            "v = f32[64] multiply(x1, hs)",
            "y = f32[64] select(g, v, x1)",
            "o = s32[] constant(0)",
            "u = f32[1,64] reshape(v)",
            "d = f32[40,64] dynamic-update-slice(x2, u, x0, o)",
        ],
        ["y", "d"],
        test=[*LIMIT, *ANY],
        given=["e = f32[] constant(3)", "g2 = f32[40,64] broadcast(e), dimensions={}"],
    ),
    "results that other lanes read": loop(
        ["f32[64]", "f32[64,64]"],
        [
            "o = s32[] constant(0)",
            "v = f32[64,1] dynamic-slice(x2, o, x0), dynamic_slice_sizes={64,1}",
            "f = f32[64] reshape(v)",
            "y = f32[64] add(x1, f)",
            "u = f32[1,64] reshape(y)",
            "d = f32[64,64] dynamic-update-slice(x2, u, x0, o)",
        ],
        ["y", "d"],
    ),
    "places of results that differ by lane": loop(
        ["f32[64]", "f32[80]"],
        [*HALVED, "d = f32[80] dynamic-update-slice(x2, y, x0)"],
        ["y", "d"],
    ),
    "a slice of the state where data say": loop(
        ["f32[64]"],
        [
            "a = f32[1] dynamic-slice(x1, x0), dynamic_slice_sizes={1}",
            "b = f32[] reshape(a)",
            "c = f32[64] broadcast(b), dimensions={}",
            "y = f32[64] add(x1, c)",
        ],
        ["y"],
    ),
}
"""Loops whose lanes need each other, by what brings them together."""


def power(size: int, rounds: int = 20) -> str:
    """Power iteration with a matrix of `size` rows."""
    lines = [
        f"d = f32[{size}] dot(x2, x1), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}",
        f"q = f32[{size}] multiply(d, d)",
        "o = f32[] constant(0)",
        "e = f32[] reduce(q, o), dimensions={0}, to_apply=sum",
        "k = f32[] rsqrt(e)",
        f"b = f32[{size}] broadcast(k), dimensions={{}}",
        f"y = f32[{size}] multiply(d, b)",
    ]
    return loop([f"f32[{size}]", f"f32[{size},{size}]"], lines, ["y", "x2"], rounds=rounds)


def heat(size: int, rounds: int = 20) -> str:
    """The neighbours of each element of a square plate."""
    shape = f"f32[{size},{size}]"
    sides = {"a": "1_-1x0_0", "b": "-1_1x0_0", "c": "0_0x1_-1", "d": "0_0x-1_1"}
    lines = ["o = f32[] constant(0)", *(f"{n} = {shape} pad(x1, o), padding={at}" for n, at in sides.items())]
    lines += [f"e = {shape} add(a, b)", f"f = {shape} add(c, d)", f"g = {shape} add(e, f)"]
    lines += ["k = f32[] constant(0.25)", f"ks = {shape} broadcast(k), dimensions={{}}", f"y = {shape} multiply(g, ks)"]
    return loop([shape], lines, ["y"], rounds=rounds)


def lstm(units: int, rounds: int = 20) -> str:
    """A cell of `units` units, which stores its result in each round."""
    one, gates, kept = f"f32[1,{units}]", 4 * units, f"f32[{rounds},{units}]"
    lines = [
        "o = s32[] constant(0)",
        f"a = {one} dynamic-slice(x4, x0, o), dynamic_slice_sizes={{1,{units}}}",
        f"j = f32[1,{2 * units}] concatenate(a, x1), dimensions={{1}}",
        f"g = f32[1,{gates}] dot(j, x3), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}",
        *(f"g{n} = {one} slice(g), slice={{[0:1],[{n * units}:{(n + 1) * units}]}}" for n in range(4)),
        *(f"h{n} = {one} {'tanh' if n == 2 else 'logistic'}(g{n})" for n in range(4)),
        f"f = {one} multiply(h1, x2)",
        f"i = {one} multiply(h0, h2)",
        f"c = {one} add(f, i)",
        f"u = {one} tanh(c)",
        f"y = {one} multiply(h3, u)",
        f"d = {kept} dynamic-update-slice(x5, y, x0, o)",
    ]
    return loop([one, one, f"f32[{2 * units},{gates}]", kept, kept], lines, ["y", "c", "x3", "x4", "d"], rounds=rounds)
