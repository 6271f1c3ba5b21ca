"""Cumulative windows along few long lines: blocks publish what they have found, and look back at those before them.

On a CPU, blocks run in another order in each launch. Seven at a time take turns, and each rests once it has its number,
so that others overtake it, and wait for it.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from hlo_opt.codegen import Kernel
from hlo_opt.codegen.host_plain import watched_unit
from hlo_opt.codegen.options import compile_options
from hlo_opt.diag import CheckError
from hlo_opt.evaluate.inputs import module_inputs
from hlo_opt.plans import Plan, look_back
from hlo_opt.plans.choose import block_of, launch_of
from hlo_opt.runtime.host.library import HostLibrary, built, flags_of, has_compiler, takes, units
from hlo_opt.runtime.host.sanitize import _VOLATILE, WATCHED_FLAGS
from hlo_opt.text import parse
from tests.codegen.conftest import Array, Tool, empty, region_of_text
from tests.codegen.test_cumulative import AFFINE, FUSED, cumulative, of_each_other, window
from tests.ops.test_symmetry import LOG_OF_SUM
from tests.small_modules import H100

pytestmark = pytest.mark.skipif(not has_compiler(), reason="no C++ compiler")

TILE = 32 * 4
"""Elements of a tile of f32 here, so that short lines have several groups."""
GROUP = 32 * TILE


class Looking(Tool):
    """Its kernels look back, whatever the price says."""

    def plan(self, text: str) -> Plan:
        region = region_of_text(text)
        parts, rest = look_back.match(region, range(len(region.roots)), H100, 48 << 10)
        assert parts and not rest, "not all outputs are along long lines"
        block = block_of(parts)
        segments = tuple(part.segment(block) for part in parts)
        return Plan(region, launch_of(segments, block), segments)


@pytest.fixture
def looking(monkeypatch: pytest.MonkeyPatch) -> Looking:
    """With the smallest blocks."""
    monkeypatch.setattr(look_back, "THREADS", 32)
    return Looking("plain")


def grids(tool: Tool, texts: list[str]) -> list[int]:
    return [tool.plan(text).launch.grid for text in texts]


def test_lines_of_all_lengths(looking: Looking) -> None:
    """A group, one tile more, an element more, two groups; forward and backward, several lines, aligned or not."""
    lengths = (GROUP + TILE, GROUP + 1, GROUP + 4, GROUP - 3 + 4 * TILE, 2 * GROUP - 1, 2 * GROUP, 2 * GROUP + 4)
    texts = [cumulative((n,), 0, reverse=n % 8 == 4) for n in lengths]
    texts += [cumulative((3, n), 1, reverse=n == 2 * GROUP) for n in (GROUP + 1, 2 * GROUP, 3 * GROUP + 5)]
    assert grids(looking, texts) == [33, 33, 33, 36, 64, 64, 65, 99, 192, 291]
    looking.all_agree(texts)


@pytest.mark.parametrize("threads", [64, 256])
def test_larger_blocks_with_several_vectors_for_a_thread(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Up to 32 registers of results, as where there are elements enough for all multiprocessors."""
    monkeypatch.setattr(look_back, "THREADS", threads)
    monkeypatch.setattr(look_back, "BLOCKS_PER_CORE", 0)
    tool, tile = Looking("plain"), threads * 32
    texts = [cumulative((n,), 0) for n in (4 * tile + 1, 5 * tile, 5 * tile + 5, 6 * tile - 4)]
    texts += [cumulative((2, 5 * tile), 1, "bf16"), of_each_other((2, 4 * tile - 3), 1)]
    rounds = [tool.plan(text).segments[0].part.rounds for text in texts]  # type: ignore[attr-defined]
    assert rounds == [8, 8, 8, 8, 4, 2]
    tool.all_agree(texts, relative=1e-4)


@pytest.mark.parametrize(
    ("kind", "opcodes"),
    [
        ("f64", "add minimum"),
        ("bf16", "add maximum"),
        ("f16", "minimum"),
        ("s8", "add multiply"),
        ("u64", "maximum xor"),
        ("s16", "and"),
        ("pred", "or and"),
        ("c64", "add"),
    ],
)
def test_types(kind: str, opcodes: str, looking: Looking) -> None:
    inits = {"add": "1", "minimum": "5", "maximum": "2", "multiply": "3", "xor": "3", "and": "-1", "or": "false"}
    texts = []
    for opcode in opcodes.split():
        init = "(1, -1)" if kind[0] == "c" else "true" if (kind, opcode) == ("pred", "and") else inits[opcode]
        shapes: list[tuple[int, ...]] = [(20001,), (2, 17408)]
        texts += [cumulative(shape, len(shape) - 1, kind, opcode, init) for shape in shapes]
    looking.all_agree(texts, relative=1e-2 if kind in ("bf16", "f16") else 1e-6)


def test_logarithms_of_sums(looking: Looking) -> None:
    body = LOG_OF_SUM.replace("ROOT r", "ROOT z")
    text = cumulative((9001,), 0, init="-inf").replace("ROOT z = f32[] add(x, y)", body)
    looking.agrees(text, relative=1e-5)


@pytest.mark.parametrize("reverse", [False, True])
def test_a_reducer_of_two_that_does_not_commute(reverse: bool, looking: Looking) -> None:
    """Maps x -> a * x + b one after another: tiles, groups and warps must come in their order."""
    dims, how = "s32[2,9001]{1,0}", window((2, 9001), 1, reverse)
    text = f"""HloModule m

{AFFINE}
ENTRY e {{
  p = {dims} parameter(0)
  q = {dims} parameter(1)
  one = s32[] constant(3)
  zero = s32[] constant(5)
  ROOT s = ({dims}, {dims}) reduce-window(p, q, one, zero), {how}, to_apply=f
}}
"""
    p, q = (2 * np.random.default_rng(k).integers(-9, 9, (2, 9001)).astype(np.int32) + 1 for k in range(2))
    want_p, want_q = p.copy(), q.copy()
    for line in range(2):
        a, b = np.int32(3), np.int32(5)
        order = range(9000, -1, -1) if reverse else range(9001)
        for k in order:  # backward, the elements after one come behind it
            with np.errstate(over="ignore"):
                if reverse:
                    a, b = (p[line, k], q[line, k]) if k == 9000 else (p[line, k] * a, p[line, k] * b + q[line, k])
                else:
                    a, b = a * p[line, k], a * q[line, k] + b
                want_p[line, k], want_q[line, k] = a, b
    got = looking.run(text, [p, q])
    if reverse:  # the init value comes behind all, which the walk back to front begins with
        with np.errstate(over="ignore"):
            want_p, want_q = want_p * np.int32(3), want_p * np.int32(5) + want_q
    np.testing.assert_array_equal(got[0], want_p)
    np.testing.assert_array_equal(got[1], want_q)


@pytest.mark.parametrize("reverse", [False, True])
def test_what_is_fused_before_and_after(reverse: bool, looking: Looking) -> None:
    texts = []
    for shape in ((2, 8704), (3, 4609)):
        text = FUSED.replace("SHAPE", ",".join(map(str, shape))).replace("ROWS", str(shape[0]))
        texts.append(text.replace("FLAT", str(shape[0] * shape[1])).replace("WINDOW", window(shape, 1, reverse)))
    for text in texts:
        (segment,) = looking.plan(text).segments
        assert len(segment.folded) == 2 and len(segment.roots) == 4
    looking.all_agree(texts)


def test_windows_of_windows(looking: Looking) -> None:
    text = of_each_other((2, 8704), 1)
    (segment,) = looking.plan(text).segments
    stages = segment.part.stages  # type: ignore[attr-defined]
    assert [[w.name for w in stage] for stage in stages] == [["s"], ["m"], ["t"]]
    looking.all_agree([text], relative=1e-4)


def launched(library: HostLibrary, kernel: Kernel, given: list[Array]) -> list[bytes]:
    outputs = [empty(shape) for shape in kernel.outputs]
    library.launch(kernel, given, outputs)
    return [array.tobytes() for array in outputs]


def test_each_launch_gives_the_same_bits(looking: Looking) -> None:
    """In whatever order blocks come: the order in which results are folded depends on places alone. And a launch leaves
    counters and flags as the next one needs them."""
    for text in (cumulative((5 * GROUP + 7,), 0), of_each_other((2, 2 * GROUP), 1)):
        kernel = looking.kernel(text)
        library = HostLibrary([kernel], form="plain")
        given = module_inputs(parse(text), seed=3)
        assert len({tuple(launched(library, kernel, given)) for _ in range(5)}) == 1


def test_beside_other_segments(monkeypatch: pytest.MonkeyPatch, tool: Tool) -> None:
    """Blocks of others take no number, and larger blocks have threads to spare."""
    monkeypatch.setattr(look_back, "THREADS", 64)
    text = """HloModule m

f { x = f32[] parameter(0)
  y = f32[] parameter(1)
  ROOT z = f32[] add(x, y) }

ENTRY e {
  p = f32[80000]{0} parameter(0)
  q = f32[3,5000]{1,0} parameter(1)
  z = f32[] constant(0)
  t = f32[3]{0} reduce(q, z), dimensions={1}, to_apply=f
  s = f32[80000]{0} reduce-window(p, z), window={size=80000 pad=79999_0}, to_apply=f
  n = f32[7]{0} iota(), iota_dimension=0
  ROOT r = (f32[80000]{0}, f32[3]{0}, f32[7]{0}) tuple(s, t, n)
}
"""
    assert sorted(s.kind for s in tool.plan(text).segments) == ["look-back", "loop", "row-reduction"]
    tool.agrees(text, whole=True)


MISTAKES = {
    "nobody waits": ("hlo_wait_for(&", "(void)(&", "read by another block|is read before"),
    "no fence when published": ("  hlo_fence();\n  HLO_SET_FLAG", "  HLO_SET_FLAG", "is not fenced when"),
    "no fence after a flag": ("      hlo_fence();\n      float", "      float", "no fence after its flag"),
    "published too early": ("hlo_publish(&arrived0[tile]);", ";", "which do not come"),
    "no barrier before warps' parts are read": ("  __syncthreads();\n  if (threadIdx.x < 32)",
        "  if (threadIdx.x < 32)", "of shared memory|read before it is written"),
}  # fmt: skip


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_are_seen(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the watch over races."""
    good, bad, message = MISTAKES[name]
    monkeypatch.setattr(look_back, "THREADS", 64)
    text = cumulative((2 * 64 * TILE + 7,), 0)
    kernel = Looking("plain").kernel(text)
    assert good in kernel.source
    given = module_inputs(parse(text), seed=3)
    told = _VOLATILE[0] if takes(_VOLATILE[0][0]) else _VOLATILE[1]
    for source, is_wrong in ((kernel.source, False), (kernel.source.replace(good, bad), True)):
        tried = replace(kernel, source=source)
        path = built(units([tried], watched_unit), (*flags_of("plain"), *WATCHED_FLAGS, *told))
        library = HostLibrary([tried], str(path))
        found = None
        for _ in range(3):
            try:
                launched(library, tried, given)
            except CheckError as error:
                found = found or error
        assert (found is not None) == is_wrong, found
        if found is not None:
            assert re.search(message, found.message), found.message


@pytest.mark.parametrize("architecture", ["sm_80", "sm_90", "sm_100"])
def test_nvrtc_reads_the_texts(architecture: str, planner: Any) -> None:
    nvrtc = pytest.importorskip("cupy.cuda").nvrtc
    for kind, opcode in (("f32", "add"), ("bf16", "maximum"), ("pred", "or")):
        kernel = planner.kernel(cumulative((1 << 20,), 0, kind, opcode, "false" if kind == "pred" else ""))
        assert kernel.kind == "look-back"
        program = nvrtc.createProgram(kernel.source, "k.cu", (), ())
        nvrtc.compileProgram(program, (f"-arch={architecture}", *compile_options()))
