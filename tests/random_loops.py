"""Random loops: elementwise steps, what moves and joins along lanes or within one, scalars, tables, results, in any
mixture. Their values are whole numbers or halves of them."""

from __future__ import annotations

from random import Random

from tests.loops import loop


def random_loop(draw: Random) -> str:
    """A loop over two arrays, a number, a table that no round changes and an array of results."""
    lanes, few = draw.choice([1, 3, 8, 33, 130]), draw.choice([1, 2, 3])
    rounds = draw.choice([1, 2, 5])
    one, two = f"f32[{lanes}]", draw.choice([f"f32[{lanes},{few}]", f"f32[{few},{lanes}]"])
    across = 0 if two == f"f32[{lanes},{few}]" else 1
    rows = rounds if draw.random() < 0.7 else rounds + 2
    state = [one, two, "f32[]", f"f32[{rows},{lanes}]", f"f32[{rows},{lanes}]"]
    lines = ["o = s32[] constant(0)", "top = f32[] constant(inf)", "half = f32[] constant(0.5)"]
    arrays, pairs, numbers = ["x1"], ["x2"], ["x3"]

    def add(kind: list[str], shape: str, text: str) -> None:
        kind.append(f"v{len(lines)}")
        lines.append(f"{kind[-1]} = {shape} {text}")

    def spread(number: str) -> str:
        lines.append(f"wide{len(lines)} = {one} broadcast({number}), dimensions={{}}")
        return lines[-1].split(" ")[0]

    def column(pair: str, at: int) -> str:
        cut = f"[0:{lanes}], [{at}:{at + 1}]" if across == 0 else f"[{at}:{at + 1}], [0:{lanes}]"
        thin = f"f32[{lanes},1]" if across == 0 else f"f32[1,{lanes}]"
        lines.append(f"col{len(lines)} = {thin} slice({pair}), slice={{{cut}}}")
        lines.append(f"col{len(lines)} = {one} reshape({lines[-1].split(' ')[0]})")
        return lines[-1].split(" ")[0]

    for _ in range(draw.randint(2, 7)):
        a, p, q = draw.choice(arrays), draw.choice(pairs), draw.choice(numbers)
        step = draw.choice(
            ["near"] * 6
            + ["own row", "pair", "join", "number", "spread", "table", "window"]
            + ["reverse", "roll", "sum", "one of them", "turn", "far"] * (draw.random() < 0.4)
        )
        if step == "near":
            add(arrays, one, f"{draw.choice(['add', 'subtract', 'maximum', 'minimum'])}({a}, {draw.choice(arrays)})")
        elif step == "own row":
            add(arrays, one, f"add({a}, {column(p, draw.randrange(few))})")
        elif step == "pair":
            add(pairs, two, f"{draw.choice(['add', 'maximum'])}({p}, {draw.choice(pairs)})")
        elif step == "join":
            thin = f"f32[{lanes},1]" if across == 0 else f"f32[1,{lanes}]"
            parts = []
            for at in draw.choices(range(few), k=few):
                source = column(p, at) if draw.random() < 0.6 else draw.choice(arrays)
                lines.append(f"thin{len(lines)} = {thin} reshape({source})")
                parts.append(lines[-1].split(" ")[0])
            add(pairs, two, f"concatenate({', '.join(parts)}), dimensions={{{1 - across}}}")
        elif step == "number":
            add(numbers, "f32[]", f"{draw.choice(['add', 'maximum'])}({q}, half)")
        elif step == "spread":
            add(arrays, one, f"minimum({a}, {spread(q)})")
        elif step == "table":
            lines.append(
                f"tab{len(lines)} = f32[1,{lanes}] dynamic-slice(x4, x0, o), dynamic_slice_sizes={{1,{lanes}}}"
            )
            lines.append(f"tab{len(lines)} = {one} reshape({lines[-1].split(' ')[0]})")
            add(arrays, one, f"add({a}, {lines[-1].split(' ')[0]})")
        elif step == "window":
            add(pairs, two, f"reverse({p}), dimensions={{{1 - across}}}")
        elif step == "reverse":
            add(arrays, one, f"reverse({a}), dimensions={{0}}")
        elif step == "roll" and lanes > 1:
            lines.append(f"cut{len(lines)} = f32[1] slice({a}), slice={{[0:1]}}")
            lines.append(f"cut{len(lines)} = f32[{lanes - 1}] slice({a}), slice={{[1:{lanes}]}}")
            first, rest = lines[-2].split(" ")[0], lines[-1].split(" ")[0]
            add(arrays, one, f"concatenate({rest}, {first}), dimensions={{0}}")
        elif step == "sum":
            add(numbers, "f32[]", f"reduce({a}, top), dimensions={{0}}, to_apply=least")
        elif step == "one of them":
            lines.append(f"el{len(lines)} = f32[1] slice({a}), slice={{[{lanes - 1}:{lanes}]}}")
            add(numbers, "f32[]", f"reshape({lines[-1].split(' ')[0]})")
        elif step == "turn":
            add(pairs, two, f"reverse({p}), dimensions={{{across}}}")
        elif step == "far":
            lines.append(f"el{len(lines)} = f32[1] dynamic-slice({a}, x0), dynamic_slice_sizes={{1}}")
            lines.append(f"el{len(lines)} = f32[] reshape({lines[-1].split(' ')[0]})")
            add(numbers, "f32[]", f"minimum({q}, {lines[-1].split(' ')[0]})")
    kept = draw.choice(arrays)
    lines.append(f"row = f32[1,{lanes}] reshape({kept})")
    place = draw.choice(["x0", "x0", "n0", "o"])
    lines.append(f"made = f32[{rows},{lanes}] dynamic-update-slice(x5, row, {place}, o)")
    if draw.random() < 0.3:  # a row that an earlier round has written, or this one
        source, at = draw.choice(["x5", "made"]), draw.choice(["x0", "n0", "o"])
        lines.append(f"past = f32[1,{lanes}] dynamic-slice({source}, {at}, o), dynamic_slice_sizes={{1,{lanes}}}")
        lines.append(f"flat = {one} reshape(past)")
        add(arrays, one, "minimum(x1, flat)")
    if few > 1 and draw.random() < 0.3:  # a place of a short dimension that the round computes
        thin, at = (f"f32[{lanes},1]", "o, x0") if across == 0 else (f"f32[1,{lanes}]", "x0, o")
        sizes = thin[4:-1]
        lines.append(f"short = {thin} dynamic-slice({draw.choice(pairs)}, {at}), dynamic_slice_sizes={{{sizes}}}")
        add(pairs, two, f"dynamic-update-slice({draw.choice(pairs)}, short, {at.replace('x0', 'n0')})")
    results = [draw.choice(arrays), draw.choice(pairs), draw.choice(numbers), "x4", "made"]
    given = ["g5 = " + f"f32[{rows},{lanes}] broadcast(seven), dimensions={{}}"] if draw.random() < 0.5 else []
    text = loop(state, lines, results, rounds=rounds, given=["seven = f32[] constant(7)", *given] if given else [])
    return text.replace(
        "HloModule m\n",
        "HloModule m\n\nleast {\n  a = f32[] parameter(0)\n  b = f32[] parameter(1)\n  ROOT c = f32[] minimum(a, "
        "b)\n}\n",
        1,
    )
