"""The search for the smallest module that shows something."""

import json
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from cutting_modules import TEXT, Says

import hlo_opt
from hlo_opt.cutting import trials
from hlo_opt.cutting.questions import ENDED, FUSING_ENDED, command_of, question_of
from hlo_opt.cutting.search import Reducer
from hlo_opt.cutting.trials import leave
from hlo_opt.diag import UsageError
from hlo_opt.passes.run import run

DUMPS = Path(__file__).parents[2] / "testdata" / "dumps"


def reduced(text, question, jobs=2):
    reducer = Reducer(text, question, jobs)
    reducer.run()
    hlo_opt.verify(hlo_opt.parse(reducer.text))
    return reducer


@pytest.mark.parametrize(
    ("pattern", "most"),
    [
        (r" sine\(", 2),
        (r" while\(", 3),
        (r" reduce\(", 4),
        (r" concatenate\(", 2),
        (r"source_line=7", 3),
        (r" call\(", 4),
    ],
)
@pytest.mark.sweep
def test_one_operation_is_left_with_what_it_needs(pattern, most):
    found = reduced(TEXT, Says(pattern))
    assert found.instructions <= most, found.text


def test_the_result_does_not_depend_on_the_number_of_processes():
    texts = {reduced(TEXT, Says(r" sine\((.|\n)* exponential\("), jobs).text for jobs in (1, 3)}
    assert len(texts) == 1


def test_a_module_that_does_not_show_it_is_an_error():
    with pytest.raises(UsageError, match="does not show"):
        reduced(TEXT, Says(r" cosine\("))


class Ends:
    """A question that a module with a sine does not live to answer."""

    def __init__(self, end):
        self.end = end

    def ways(self):
        return [self.ask]

    def ask(self, module, text):
        leave(ENDED)
        if " sine(" in text:
            self.end()


def crash():
    os.kill(os.getpid(), signal.SIGKILL)


def compute():
    while True:
        pass


@pytest.mark.parametrize("end", [crash, compute])
def test_a_crash_or_a_run_without_an_end_can_be_kept(end, monkeypatch):
    monkeypatch.setattr(trials, "LEAST", 1.0)
    monkeypatch.setattr(trials, "ALLOWED", 0)
    text = "HloModule m\nENTRY e {\n  p = f32[9]{0} parameter(0)\n  s = f32[9]{0} sine(p)\n  ROOT r = f32[9]{0} add(s, p)\n}\n"
    found = reduced(text, Ends(end))
    assert found.answer == ENDED and found.instructions == 2


@pytest.mark.parametrize("end", [crash, compute])
@pytest.mark.parametrize("keep", ["fuse fails", "fuse --check fails"])
def test_a_crash_of_fusing_and_fusing_without_an_end_can_be_kept(keep, end):
    def fuse(module):
        if any(i.opcode == "sine" for c in module.computations for i in c.instructions):
            end()
        return run(module)

    text = "HloModule m\nENTRY e {\n  p = f32[9]{0} parameter(0)\n  s = f32[9]{0} sine(p)\n  ROOT r = f32[9]{0} add(s, p)\n}\n"
    found = reduced(text, question_of(keep, fuse, "numpy", limit=1.0))
    assert found.answer == FUSING_ENDED and found.instructions == 2


NAMED = """HloModule scatter_all
ENTRY e {
  scatter.1 = f32[9]{0} parameter(0)
  scatter.2 = f32[9]{0} sine(scatter.1), metadata={op_name="jit(f)/scatter"}
  scatter.3 = f32[9]{0} cosine(scatter.2)
  ROOT r = f32[9]{0} tanh(scatter.3)
}
"""


def test_a_command_that_looks_for_a_word_finds_no_name():
    found = reduced(NAMED, command_of("grep -q cosine {}"))
    assert [i.opcode for i in found.module.entry.instructions] == ["parameter", "cosine"]
    found = reduced(NAMED.replace("scatter", "cosine"), command_of("grep -q cosine {}"))
    assert [i.opcode for i in found.module.entry.instructions] == ["parameter", "cosine"]
    assert reduced(NAMED, command_of("grep -q scatter.3 {}")).instructions == 1  # there is nothing else of that name


def long_module(count, seed=0):
    """A chain of `count` operations, each of one or two of the values before it."""
    generator = random.Random(seed)
    lines, values = ["HloModule long", "ENTRY e {", "  v0 = f32[64,8]{1,0} parameter(0)"], ["v0"]
    for n in range(1, count):
        operation = generator.choice(["add", "multiply", "negate", "tanh", "sine"])
        operands = generator.choices(values[-6:], k=2 if operation in ("add", "multiply") else 1)
        lines.append(f"  {'ROOT ' * (n == count - 1)}v{n} = f32[64,8]{{1,0}} {operation}({', '.join(operands)})")
        values.append(f"v{n}")
    return "\n".join([*lines, "}", ""])


def test_a_local_fault_among_thousands_of_instructions_takes_few_tries():
    text = long_module(5000)
    lines = text.split("\n")
    lines[3100] = lines[3100].split(" = ")[0] + " = f32[64,8]{1,0} atan2(v3070, v3069)"
    found = reduced("\n".join(lines), Says(r" atan2\("))
    assert found.instructions <= 3 and found.trials.tried < 400


def test_a_wrong_rewrite_is_found_with_our_own_check():
    from hlo_opt.ir import edit

    def fuse(module):
        outcome = run(module)
        for computation in outcome.module.computations:
            for i in computation.instructions:
                if i.opcode == "multiply" and i.operands[0].opcode == "tanh":
                    edit.replace_operand(i, 0, i.operands[0].operands[0])
        return outcome

    text = long_module(300, seed=3)
    assert any(
        i.opcode == "multiply" and i.operands[0].opcode == "tanh" for i in hlo_opt.parse(text).entry.instructions
    )
    found = reduced(text, question_of("fuse --check fails", fuse))
    assert found.answer == "differs" and found.instructions <= 4, found.text
    assert " tanh(" in found.text and " multiply(" in found.text


@pytest.mark.parametrize("name", ["embed_gradient", "sharded_ring", "batch_norm", "nested"])
def test_every_module_that_is_tried_is_one_for_xla(name, tmp_path):
    hlo = pytest.importorskip("jaxlib._hlo")

    def look(text):
        try:
            hlo.hlo_module_from_text(text)
        except Exception as error:
            return str(error)
        return None

    text = (DUMPS / f"{name}.hlo").read_text()
    opcodes = sorted(
        {i.opcode for c in hlo_opt.parse(text).computations for i in c.instructions} - {"parameter", "tuple"}
    )
    for opcode in random.Random(name).sample(opcodes, 2):
        reduced(text, Says(rf" {opcode}\(", look, tmp_path))
    assert [p.read_text() for p in tmp_path.iterdir()] == []


@pytest.mark.parametrize(("name", "opcode"), [("nested", "while"), ("embed_gradient", "scatter")])
def test_every_module_on_the_way_is_compiled_by_xla(name, opcode, monkeypatch):
    """Which runs its verifier; in a process of its own, for JAX has threads."""
    pytest.importorskip("jaxlib")
    taken = []
    take = Reducer._take
    monkeypatch.setattr(Reducer, "_take", lambda self, text: (taken.append(text), take(self, text))[1])
    reduced((DUMPS / f"{name}.hlo").read_text(), Says(rf" {opcode}\("))
    assert len(taken) > 3
    code = (
        "import json, sys; from scripts.xla_cpu import Program; [Program(t, optimized=False) for t in "
        "json.load(sys.stdin)]"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        input=json.dumps(taken),
        text=True,
        capture_output=True,
        cwd=DUMPS.parents[1],
        check=False,
    )
    assert done.returncode == 0, done.stderr


class LongOrTwo:
    """A question that a sine shows by itself in a long array only."""

    def ways(self):
        return [self.ask]

    def ask(self, module, text):
        is_long = any(d >= 64 for i in module.entry.instructions for d in i.shape.dimensions)
        return "yes" if " sine(" in text and (is_long or " cosine(" in text) else None


def test_arrays_grow_again_where_that_takes_fewer_instructions():
    lines = ["p = f32[32]{0} parameter(0)", "s = f32[32]{0} sine(p)", "ROOT r = f32[32]{0} cosine(s)"]
    text = "\n".join(["HloModule m", "ENTRY e {", *lines, "}", ""])
    found = reduced(text, LongOrTwo())
    assert found.instructions == 2 and "f32[64]" in found.text
