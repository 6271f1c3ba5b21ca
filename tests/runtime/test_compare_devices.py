"""Checks of modules for several devices: planted mistakes in collectives."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
import pytest

import hlo_opt
from hlo_opt.cli.group import run
from hlo_opt.diag import EvaluationError, UsageError
from hlo_opt.evaluate import device_inputs
from hlo_opt.ir import Module, edit
from hlo_opt.passes.base import Pass, PassContext
from hlo_opt.runtime.check.compare import check
from hlo_opt.runtime.host.library import has_compiler
from tests.runtime.test_executable_devices import CASES, module_of

DUMPS = Path(__file__).parents[2] / "testdata" / "dumps"
SHARDED = ["sharded_block", "sharded_ring", "sharded_step"]
_COLLECTIVE = re.compile(
    r"(?P<name>[\w.\-]+) = (?P<shape>\(.*?\)|[a-z]\w*\[\S*?) "
    r"(?P<opcode>(?:all|collective|reduce-scatter|ragged)[\w\-]*)\((?P<operands>[^)]*)\)(?P<rest>[^\n]*)"
)
_OTHER = {"add": "maximum", "maximum": "minimum"}


def plants(text: str) -> Iterator[tuple[str, str]]:
    """Texts with one mistake in a collective each, and what was done."""
    for found in _COLLECTIVE.finditer(text):
        name, opcode, rest = found["name"], found["opcode"], found["rest"]
        if opcode.endswith("-done"):
            continue

        def put(line: str, found: re.Match[str] = found) -> str:
            return text[: found.start()] + line + text[found.end() :]

        def with_rest(changed: str, found: re.Match[str] = found) -> str:
            return put(found[0][: found.start("rest") - found.start()] + changed)

        if (
            opcode in ("all-reduce", "collective-permute", "all-to-all", "collective-broadcast")
            and found["shape"][0] != "("
        ):
            yield f"{name} removed", put(f"{name} = {found['shape']} copy({found['operands']})")
        groups = re.search(r"replica_groups=(\{\{[\d,{}]*\}\}|\{\}|mesh\S* \{'\w+'\})", rest)
        if groups is not None and opcode not in ("ragged-all-to-all",):
            for other in ("{{0,1},{2,3}}", "{{0,2},{1,3}}", "{{0,3},{1,2}}"):
                same = groups[1] == other or (groups[1].startswith("mesh") and other == "{{0,2},{1,3}}")
                if not same and _fits(opcode, groups[1]):
                    yield f"{name} in {other}", with_rest(rest.replace(groups[1], other))
            if opcode.startswith("all-gather"):
                members = groups[1].replace("{}", "{{0,1,2,3}}")
                turned = re.sub(r"\{([\d,]+)\}", lambda m: "{" + ",".join(reversed(m[1].split(","))) + "}", members)
                yield f"{name} in another order", with_rest(rest.replace(groups[1], turned))
        reducer = re.search(r"to_apply=([\w.\-]+)", rest)
        if reducer is not None:
            body = re.search(rf"^%?{re.escape(reducer[1])} .*?^\}}", text, re.M | re.S)
            assert body is not None
            opposite = re.sub(r" (add|maximum)\(", lambda m: f" {_OTHER[m[1]]}(", body[0])
            other = opposite.replace(reducer[1], "planted", 1)
            yield (
                f"{name} with another reducer",
                text[: body.start()]
                + other
                + "\n"
                + text[body.start() : found.start("rest")]
                + rest.replace(reducer[1], "planted")
                + text[found.end() :],
            )
        pairs = re.search(r"source_target_pairs=\{(.*?\})\}", rest)
        if pairs is not None:
            each = re.findall(r"\{(\d+),(\d+)\}", pairs[1])
            for what, changed in (
                ("turned round", [(b, a) for a, b in each]),
                ("without a pair", each[1:]),
                ("rotated", [(a, each[k - 1][1]) for k, (a, _) in enumerate(each)]),
            ):
                spelled = ",".join(f"{{{a},{b}}}" for a, b in changed)
                yield f"{name} {what}", with_rest(rest.replace(pairs[1], spelled))


def _fits(opcode: str, groups: str) -> bool:
    """Whether groups of two may stand there: the sizes of the results depend on how many there are."""
    return opcode.startswith(("all-reduce", "collective-broadcast")) or groups.count(",") == 3


def differs(text: str, planted: str) -> bool:
    """Whether a plant changes what the module computes on some inputs."""
    first, second = hlo_opt.parse(text), hlo_opt.parse(planted)
    inputs = device_inputs(first, 5)
    pairs = zip(hlo_opt.evaluate_devices(first, inputs), hlo_opt.evaluate_devices(second, inputs), strict=True)
    return any(not np.array_equal(a, b) for own, other in pairs for a, b in zip(own, other, strict=True))


def unseen(text: str) -> list[str]:
    """Which plants that change what a module computes are not found. There must be some that do."""
    module = hlo_opt.parse(text)
    assert check(module, module, backend="numpy").ok
    made = [(what, planted) for what, planted in plants(text) if differs(text, planted)]
    assert made
    found = [(what, check(module, hlo_opt.parse(planted), backend="numpy")) for what, planted in made]
    assert all(result.first is not None and result.first.device is not None for _, result in found if not result.ok)
    return [what for what, result in found if result.ok]


@pytest.mark.parametrize("case", [case for case in CASES if not case.startswith(("numbers", "ragged"))])
def test_mistakes_in_collectives_are_found(case: str) -> None:
    module = module_of(CASES[case])
    reached = {module.entry}
    for computation in reversed(list(module.computations)):
        if computation in reached:
            reached |= {c for i in computation.instructions for c in i.called()}
        else:
            edit.remove_computation(computation)
    assert unseen(str(module).replace("%", "")) == []


@pytest.mark.parametrize("name", SHARDED[:2])
def test_mistakes_in_dumps_are_found(name: str) -> None:
    assert unseen((DUMPS / f"{name}.hlo").read_text(encoding="utf-8")) == []


@pytest.mark.skipif(not has_compiler(), reason="no C++ compiler")
@pytest.mark.parametrize("name", SHARDED)
def test_dumps_agree_with_what_fusing_makes_of_them(name: str) -> None:
    module = hlo_opt.parse((DUMPS / f"{name}.hlo").read_text(encoding="utf-8"))
    fused, _ = hlo_opt.fuse(module)
    found = check(module, fused, backend="host")
    assert found.ok and not found.weak and found.devices == (1, 4)
    assert "on 4 devices" in str(found)


@dataclass(frozen=True)
class Plant(Pass):
    """Let each device keep what a collective should exchange."""

    name: ClassVar[str] = "acme-plant"
    preserves: ClassVar[Literal["graph", "meaning"]] = "meaning"

    def run(self, module: Module, context: PassContext) -> bool:
        for computation in module.computations:
            for instruction in list(computation.instructions):
                if instruction.opcode in ("all-reduce", "collective-permute"):
                    edit.replace_all_uses(instruction, instruction.operands[0])
                    edit.remove(instruction)
                    return True
        return False


@pytest.mark.skipif(not has_compiler(), reason="no C++ compiler")
@pytest.mark.parametrize("name", SHARDED[:2])
def test_fuse_finds_what_a_pass_does_to_collectives(
    name: str, fake_plugins, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    fake_plugins("hlo_opt.passes", **{"acme-plant": f"{__name__}:Plant"})
    file, output = str(DUMPS / f"{name}.hlo"), tmp_path / "fused.hlo"
    assert run(["fuse", file, "--passes", "acme-plant,dce", "--check", "-o", str(output)]) == 1
    assert "check: differs on host" in capfd.readouterr().err
    assert not output.exists()
    assert run(["fuse", file, "--check", "-o", str(output)]) == 0
    assert run(["check", file, str(output)]) == 0
    assert "on 4 devices" in capfd.readouterr().out


UNNAMED = """HloModule m

add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}

ENTRY e {
  p = f32[4]{0} parameter(0)
  ROOT r = f32[4]{0} all-reduce(p), replica_groups={{0,1},{2,3}}, to_apply=add
}
"""


def test_collectives_name_devices_that_the_header_leaves_out(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    module = hlo_opt.parse(UNNAMED)
    wrong = hlo_opt.parse(UNNAMED.replace("{{0,1},{2,3}}", "{{0,2},{1,3}}"))
    found = check(module, module, backend="numpy")
    assert found.ok and found.devices == (4, 1)
    found = check(module, wrong, backend="numpy")
    assert not found.ok and "out0.d0[0]: expected " in str(found)
    given = [np.ones(4, np.float32)]
    found = check(module, wrong, given, backend="numpy")
    assert found.ok and [r.weak for r in found.outputs] == ["all elements are 2.0"]
    found = check(module, wrong, [np.arange(4, dtype=np.float32)], backend="numpy")
    assert found.ok and [r.weak for r in found.outputs] == ["all devices have the same inputs"]
    (tmp_path / "m.hlo").write_text(UNNAMED)
    (tmp_path / "w.hlo").write_text(str(wrong))
    np.savez(tmp_path / "in.npz", **{f"in0.d{k}": np.full(4, k, np.float32) for k in range(4)})
    files = [str(tmp_path / "m.hlo"), str(tmp_path / "w.hlo"), "--inputs", str(tmp_path / "in.npz")]
    assert run(["check", *files, "--backend", "numpy"]) == 1
    assert "expected 1.0, got 2.0" in capfd.readouterr().out
    assert run(["check", files[0], "--inputs", files[-1], "--backend", "numpy"]) == 0


def test_more_devices_than_can_be_simulated_are_left_out() -> None:
    module = hlo_opt.parse(UNNAMED)
    least = check(module, module, backend="numpy", memory_limit=1000)
    assert least.devices == (4, 1) and not least.note
    one = check(module, module, backend="numpy", memory_limit=250)
    assert one.devices == (1, 1) and one.note.startswith("only on one device: its collectives name 4 devices")
    with pytest.raises(EvaluationError, match="HLO402"):
        check(module, module, backend="numpy", memory_limit=10)


STUCK = UNNAMED.replace(
    "ENTRY",
    """sums {
  v = f32[4]{0} parameter(0)
  ROOT r = f32[4]{0} all-reduce(v), replica_groups={{0,1}}, to_apply=add
}
keeps {
  ROOT v = f32[4]{0} parameter(0)
}

ENTRY""",
).replace(
    "  ROOT r = f32[4]{0} all-reduce(p), replica_groups={{0,1},{2,3}}, to_apply=add",
    """  i = u32[] replica-id()
  s = s32[] convert(i)
  ROOT r = f32[4]{0} conditional(s, p, p), branch_computations={sums, keeps}""",
)


def test_devices_that_wait_for_each_other() -> None:
    """Where the header says one device, the collectives may not be meant as they stand; a module that waits only after
    it was changed was changed wrongly."""
    stuck = hlo_opt.parse(STUCK)
    assert check(stuck, stuck, backend="numpy").note.endswith("cannot be simulated together (HLO405)")
    right = hlo_opt.parse(STUCK.replace("{sums, keeps}", "{sums, sums}"))
    assert check(right, right, backend="numpy").devices == (2, 1)
    with pytest.raises(EvaluationError, match="HLO405 all-reduce r: the devices wait for each other"):
        check(right, stuck, backend="numpy")
    with pytest.raises(EvaluationError, match="HLO405"):
        declared = hlo_opt.parse(STUCK.replace("HloModule m", "HloModule m, replica_count=2"))
        check(declared, declared, backend="numpy")


def test_headers_must_agree() -> None:
    module = hlo_opt.parse(UNNAMED)
    other = hlo_opt.parse(UNNAMED.replace("HloModule m", "HloModule n, num_partitions=4"))
    with pytest.raises(UsageError, match="HLO702 m is for 1 x 1 devices, n for 1 x 4 devices"):
        check(module, other, backend="numpy")
