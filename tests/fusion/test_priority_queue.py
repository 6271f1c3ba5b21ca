"""The queue remembers verdicts and costs; what it remembers must be what a fresh look gives."""

import random

import pytest

import hlo_opt
from hlo_opt.analysis.targets import target
from hlo_opt.fusion.engine import Engine
from hlo_opt.fusion.priority_choices import PriorityChoices
from hlo_opt.fusion.priority_queue import PriorityQueue
from hlo_opt.ir import Instruction


def graph(seed: int) -> str:
    """Some dozen operations on three shapes, each reading what came before."""
    draw = random.Random(seed)
    values = {"[32,64]{1,0}": ["p"], "[32]{0}": ["q"], "[2048]{0}": ["r"]}
    lines = [
        "p = f32[32,64]{1,0} parameter(0)",
        "q = f32[32]{0} parameter(1)",
        "r = f32[2048]{0} parameter(2)",
        "z = f32[] constant(0)",
    ]
    for n in range(30):
        shape = draw.choice(list(values))
        one, other = draw.choice(values[shape]), draw.choice(values[shape])
        kind = draw.choice(["add", "tanh", "move"])
        made = shape
        if kind == "add":
            text = f"add({one}, {other})"
        elif kind == "tanh":
            text = f"tanh({one})"
        elif shape == "[32]{0}":
            made, text = "[32,64]{1,0}", f"broadcast({one}), dimensions={{0}}"
        elif shape == "[2048]{0}":
            made, text = "[32,64]{1,0}", f"bitcast({one})"
        else:
            made, text = draw.choice(
                [("[32]{0}", f"reduce({one}, z), dimensions={{1}}, to_apply=sum"), ("[2048]{0}", f"bitcast({one})")]
            )
        values[made].append(f"v{n}")
        lines.append(f"v{n} = f32{made} {text}")
    results = [v for found in values.values() for v in found[-2:] if v.startswith("v")]
    shapes = [next(line.split(" = ")[1].split(" ")[0] for line in lines if line.startswith(f"{v} =")) for v in results]
    reducer = "sum {\n  a = f32[] parameter(0)\n  b = f32[] parameter(1)\n  ROOT c = f32[] add(a, b)\n}\n"
    root = f"ROOT t = ({', '.join(shapes)}) tuple({', '.join(results)})"
    return f"HloModule m\n\n{reducer}\nENTRY e {{\n  " + "\n  ".join([*lines, root]) + "\n}\n"


@pytest.mark.parametrize("seed", range(6))
def test_what_the_queue_remembers_is_true(seed: int):
    module = hlo_opt.parse(graph(seed))
    engine = Engine(module, target("h100_sxm"), {})
    choices = PriorityChoices()
    module.entry.index_users()

    def accepts(producer: Instruction, consumer: Instruction) -> bool:
        return engine.allows(engine.edge(producer, consumer), choices, any_form=True)

    queue = PriorityQueue(module.entry, engine.state, accepts)
    steps = 0
    while (found := queue.pop()) is not None:
        producer, users = found
        for user in users:
            queue.fused(producer, user, engine.fuse(producer, user))
            steps += 1
        queue.update()
        fresh = PriorityQueue(module.entry, Engine(module, target("h100_sxm"), {}).state, accepts)
        for instruction in module.entry.instructions:
            if instruction in fresh._standings and instruction.opcode != "bitcast":
                assert queue.priority(instruction) == fresh.priority(instruction), (steps, instruction.name)
    assert steps > 5


def test_of_equal_producers_the_latest_comes_first():
    text = """HloModule m

ENTRY e {
  p = f32[64]{0} parameter(0)
  a = f32[64]{0} negate(p)
  b = f32[64]{0} negate(p)
  x = f32[64]{0} tanh(a)
  y = f32[64]{0} tanh(b)
  ROOT t = (f32[64]{0}, f32[64]{0}) tuple(x, y)
}
"""
    module = hlo_opt.parse(text)
    engine = Engine(module, target("h100_sxm"), {})
    queue = PriorityQueue(module.entry, engine.state, lambda p, c: c.opcode != "tuple")
    order = []
    while (found := queue.pop()) is not None:
        order.append(found[0].name)
    assert order == ["b", "a"]


def test_a_user_is_asked_once_whether_it_is_wanted():
    users = 40
    lines = ["p = f32[64]{0} parameter(0)", "v = f32[64]{0} tanh(p)", "total0 = f32[64]{0} negate(v)"]
    for n in range(1, users):
        lines += [f"user{n} = f32[64]{{0}} abs(v)", f"total{n} = f32[64]{{0}} add(total{n - 1}, user{n})"]
    lines.append(f"ROOT r = f32[64]{{0}} negate(total{users - 1})")
    module = hlo_opt.parse("HloModule m\n\nENTRY e {\n  " + "\n  ".join(lines) + "\n}\n")
    engine = Engine(module, target("h100_sxm"), {})
    asked = {"accepts": 0, "wanted": 0}

    def ask(name: str, answer: bool) -> bool:
        asked[name] += 1
        return answer

    queue = PriorityQueue(
        module.entry, engine.state, lambda p, c: ask("accepts", True), wanted=lambda p, c: ask("wanted", False)
    )
    while (found := queue.pop()) is not None:
        for user in found[1]:
            queue.fused(found[0], user, engine.fuse(found[0], user))
        queue.update()
    assert users < asked["wanted"] <= asked["accepts"]
