"""One hash for a module: the same however it is told, another one for whatever it says."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

import hlo_opt
from hlo_opt.analysis.graph.digest import module_digest
from scripts.diff_programs import PLANTS, planted, program, retold

TEXT = """HloModule m

sum {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] add(a, b)
}

ENTRY e {
  p = f32[64,8]{1,0} parameter(0)
  q = f32[64,8]{1,0} parameter(1)
  a = f32[64,8]{1,0} add(p, q)
  t = f32[64,8]{1,0} tanh(a)
  z = f32[] constant(0)
  ROOT r = f32[64]{0} reduce(t, z), dimensions={1}, to_apply=sum
}
"""


def digest(text: str) -> str:
    return module_digest(hlo_opt.parse(text))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (" t = f32[64,8]{1,0} tanh(a)", " u.7 = f32[64,8]{1,0} tanh(a)"),
        ("tanh(a)", 'tanh(a), metadata={op_name="x" source_line=9}'),
        ("add(p, q)", "add(q, p)"),
        ("HloModule m", "HloModule jit_f.12"),
        ("f32[64,8]{1,0} tanh", "f32[64,8] tanh"),
        ("HloModule m", "HloModule m, replica_count=1"),
        ("ENTRY", "unused {\n  ROOT p = f32[] parameter(0)\n}\n\nENTRY"),
    ],
)
def test_what_does_not_count(old, new):
    changed = TEXT.replace(old, new, 1).replace("reduce(t", "reduce(u.7" if "u.7" in new else "reduce(t")
    assert changed != TEXT and digest(changed) == digest(TEXT)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("tanh(a)", "sine(a)"),
        ("constant(0)", "constant(1)"),
        ("ROOT s = f32[] add", "ROOT s = f32[] multiply"),
        ("t = f32[64,8]{1,0}", "t = f32[64,8]{0,1}"),
        ("add(p, q)", "subtract(p, q)"),
        ("add(p, q)", "add(p, p)"),
        ("HloModule m", "HloModule m, num_partitions=2"),
        ("  z = f32", "  d = f32[64,8]{1,0} tanh(a)\n  z = f32"),
        ("z = f32[] constant(0)", "z = f32[] constant(0), control-predecessors={t}"),
    ],
)
def test_what_counts(old, new):
    changed = TEXT.replace(old, new, 1)
    assert changed != TEXT and digest(changed) != digest(TEXT)


def test_the_order_of_operands_counts_where_it_means_something():
    text = TEXT.replace("add(p, q)", "subtract(p, q)")
    assert digest(text) != digest(text.replace("subtract(p, q)", "subtract(q, p)"))


def test_the_forms_of_a_dump_have_one_hash(dumps):
    for name, form in (("softmax", "classic"), ("softmax", "frames"), ("cartpole_scan", "frames")):
        assert digest((dumps / f"{name}.hlo").read_text()) == digest((dumps / f"{name}.{form}.hlo").read_text())


@pytest.mark.parametrize("seed", range(3))
def test_a_program_that_is_told_again(seed):
    text = program(200, seed)
    assert digest(retold(hlo_opt.parse(text), seed)) == digest(text)


@pytest.mark.parametrize("kind", PLANTS)
def test_every_planted_change_counts(kind):
    text = program(200, 1)
    assert module_digest(planted(text, kind, 1).module) != digest(text)


def test_it_is_the_same_in_every_process(dumps):
    found = {
        subprocess.run(
            [sys.executable, "-m", "hlo_opt", "stats", "--hash", str(dumps / "softmax.hlo")],
            capture_output=True,
            check=True,
            env={**os.environ, "PYTHONHASHSEED": seed},
        ).stdout
        for seed in ("1", "2")
    }
    assert len(found) == 1
