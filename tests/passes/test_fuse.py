"""Whole runs: on our dumps, on random graphs, twice the same."""

import importlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hlo_opt
from hlo_opt.fusion.summary import module_summary
from hlo_opt.passes import report_on, run
from hlo_opt.passes.base import FusionPass

ROOT = Path(__file__).parents[2]
DUMPS = sorted((ROOT / "testdata" / "dumps").glob("*.hlo"))


@pytest.mark.parametrize("path", DUMPS, ids=lambda p: p.stem)
@pytest.mark.sweep
def test_dumps_are_fused_and_proved(path: Path):
    text = path.read_text()
    module = hlo_opt.parse(text, filename=path.name)
    outcome = run(module)
    fused, decisions = outcome.module, outcome.decide()
    hlo_opt.verify(fused)
    printed = str(fused)
    assert str(hlo_opt.parse(printed)) == printed
    assert str(module) == str(hlo_opt.parse(text, filename=path.name))
    before, after = (module_summary(m, outcome.target) for m in (module, fused))
    assert after.kernels <= before.kernels
    # XLA counts the whole operand of a scatter that is part of a fusion, and of another scatter what it touches
    scatters = any(i.opcode == "scatter" for c in fused.computations if c is not fused.entry for i in c.instructions)
    # of a loop one iteration counts before, of a kernel that holds it all that it returns
    loops = before.launches > before.kernels > after.launches
    assert after.bytes <= before.bytes or scatters or loops
    assert after.est_us <= before.est_us
    for decision in decisions:
        assert decision.rule
        assert len({str(r) for r in decision.reasons}) == len(decision.reasons)


@pytest.mark.parametrize("path", DUMPS[::20], ids=lambda p: p.stem)
def test_xla_reads_what_is_printed(path: Path):
    xla = pytest.importorskip("jaxlib._hlo")
    fused, _ = hlo_opt.fuse(hlo_opt.parse(path.read_text(), filename=path.name))
    names = [c.name for c in xla.hlo_module_from_text(str(fused)).computations()]
    assert sorted(names) == sorted(c.name for c in fused.computations)


@pytest.mark.parametrize("name", ["cache_update", "embed_gradient", "layer_norm_gradient", "nested", "running_sums"])
def test_xla_computes_the_same_from_both(name: str):
    pytest.importorskip("jaxlib")
    from scripts.xla_cpu import Program, sample_inputs

    text = (ROOT / "testdata" / "dumps" / f"{name}.hlo").read_text()
    fused, _ = hlo_opt.fuse(hlo_opt.parse(text))
    original = Program(text)
    inputs = sample_inputs(original.parameters, 0)
    for a, b in zip(original(inputs), Program(str(fused))(inputs), strict=True):
        np.testing.assert_allclose(a.astype(np.float64), b.astype(np.float64), 1e-5, 1e-5)


@pytest.mark.parametrize("name", ["softmax", "adam_one", "cartpole_scan"])
def test_the_same_input_gives_the_same_bytes(name: str):
    text = (ROOT / "testdata" / "dumps" / f"{name}.hlo").read_text()
    outputs = []
    for _ in range(2):
        fused, decisions = hlo_opt.fuse(hlo_opt.parse(text))
        outputs.append((str(fused), decisions))
    assert outputs[0] == outputs[1]


def test_fusing_again_changes_nothing():
    text = (ROOT / "testdata" / "dumps" / "layer_norm.hlo").read_text()
    once, _ = hlo_opt.fuse(hlo_opt.parse(text))
    twice, _ = hlo_opt.fuse(hlo_opt.parse(str(once)))
    kernels = [sum(i.opcode == "fusion" for i in m.entry.instructions) for m in (once, twice)]
    assert kernels[0] == kernels[1]


def test_an_explanation_counts_before_and_after():
    module = hlo_opt.parse((ROOT / "testdata" / "dumps" / "mlp_train_step.hlo").read_text())
    report = report_on(run(module))
    assert report.after.kernels < report.before.kernels
    assert report.after.bytes < report.before.bytes
    assert report.after.est_us < report.before.est_us
    assert sum(report.refusals_by_code.values()) >= len(report.refused) > 0
    saved = [d.cost.us_saved for d in report.dearest if d.cost is not None]
    assert saved == sorted(saved, reverse=True)


UNARY = ("negate", "abs", "sine", "tanh", "exponential")
BINARY = ("add", "subtract", "multiply", "maximum")
SUM = "sum {\n  a = f32[] parameter(0)\n  b = f32[] parameter(1)\n  ROOT c = f32[] add(a, b)\n}\n\n"
M, V = "f32[6,32]{1,0}", "f32[6]{0}"


@st.composite
def programs(draw: st.DrawFn) -> str:
    """A random graph over matrices [6,32] and vectors [6]."""
    lines = [
        f"  p0 = {M} parameter(0)",
        f"  p1 = {M} parameter(1)",
        f"  p2 = {V} parameter(2)",
        "  zero = f32[] constant(0)",
    ]
    matrices, vectors = ["p0", "p1"], ["p2"]
    for n in range(draw(st.integers(1, 14))):
        kind = draw(st.sampled_from(("unary", "binary", "vector", "reduce", "broadcast", "transpose", "slice")))
        pick = lambda names: draw(st.sampled_from(names))  # noqa: E731
        if kind == "unary":
            lines.append(f"  x{n} = {M} {draw(st.sampled_from(UNARY))}({pick(matrices)})")
        elif kind == "binary":
            lines.append(f"  x{n} = {M} {draw(st.sampled_from(BINARY))}({pick(matrices)}, {pick(matrices)})")
        elif kind == "vector":
            lines.append(f"  x{n} = {V} {draw(st.sampled_from(BINARY))}({pick(vectors)}, {pick(vectors)})")
        elif kind == "reduce":
            lines.append(f"  x{n} = {V} reduce({pick(matrices)}, zero), dimensions={{1}}, to_apply=sum")
        elif kind == "broadcast":
            lines.append(f"  x{n} = {M} broadcast({pick(vectors)}), dimensions={{0}}")
        elif kind == "transpose":
            lines.append(f"  y{n} = f32[32,6]{{1,0}} transpose({pick(matrices)}), dimensions={{1,0}}")
            lines.append(f"  x{n} = {M} transpose(y{n}), dimensions={{1,0}}")
        else:
            lines.append(f"  y{n} = f32[6,16]{{1,0}} slice({pick(matrices)}), slice={{[0:6], [8:24]}}")
            lines.append(f"  x{n} = {M} concatenate(y{n}, y{n}), dimensions={{1}}")
        (vectors if kind in ("vector", "reduce") else matrices).append(f"x{n}")
    outputs = draw(st.lists(st.sampled_from(matrices + vectors), min_size=1, max_size=4))
    shapes = [V if o in vectors else M for o in outputs]
    lines.append(f"  ROOT out = ({', '.join(shapes)}) tuple({', '.join(outputs)})")
    return f"HloModule random\n\n{SUM}ENTRY e {{\n" + "\n".join(lines) + "\n}\n"


@settings(max_examples=30, deadline=None)
@given(programs())
def test_random_graphs_keep_their_values(text: str):
    """`default` may reorder sums (`sum-factoring`), `xla-2026` nothing."""
    module = hlo_opt.parse(text)
    generator = np.random.default_rng(0)
    inputs = [generator.standard_normal(s).astype(np.float32) for s in ((6, 32), (6, 32), (6,))]
    wanted = hlo_opt.evaluate(module, inputs)
    for name, bound in (("xla-2026", 0.0), ("default", 1e-5)):
        fused, _ = hlo_opt.fuse(module, preset=name)
        hlo_opt.verify(fused)
        found = hlo_opt.evaluate(hlo_opt.parse(str(fused)), inputs)
        for a, b in zip(wanted, found, strict=True):
            np.testing.assert_allclose(a, b, rtol=bound, atol=bound * float(np.abs(a).max(initial=0.0)))


@settings(max_examples=25, deadline=None)
@given(programs())
def test_what_passes_hand_on_changes_nothing(text: str):
    """Fusion passes share what they know about a module; with nothing shared, all comes out the same."""
    module = hlo_opt.parse(text)
    fused, decisions = hlo_opt.fuse(module)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FusionPass, "keeps_memory", False)
        alone, told = hlo_opt.fuse(module)
        found = list(told)
    assert str(fused) == str(alone)
    assert decisions == found


@settings(max_examples=15, deadline=None)
@given(programs(), st.integers(0, 12))
def test_every_step_is_right(text: str, limit: int):
    """Stopped after any number of steps, the module is well formed and proved."""
    fused, decisions = hlo_opt.fuse(hlo_opt.parse(text), stop_after_step=limit)
    hlo_opt.verify(hlo_opt.parse(str(fused)))
    assert all(d.reasons or d.fused for d in decisions)


def test_a_text_will_do_for_a_module(dumps: Path) -> None:
    text = (dumps / "softmax.hlo").read_text()
    assert str(hlo_opt.fuse(text)[0]) == str(hlo_opt.fuse(hlo_opt.parse(text))[0])
    with pytest.raises(hlo_opt.ParseError):
        hlo_opt.fuse("softmax.hlo")
    with pytest.raises(hlo_opt.VerifyError):
        hlo_opt.fuse(text.replace("maximum(", "and(", 1))


def test_the_module_shows_its_names() -> None:
    assert {"fuse", "parse", "evaluate", "compile", "__version__"} <= set(dir(hlo_opt))
    assert all(hasattr(hlo_opt, name) for name in dir(hlo_opt))
    room = importlib.import_module("hlo_opt.evaluate")
    assert dir(room) == room.__all__ and all(hasattr(room, name) for name in dir(room))
