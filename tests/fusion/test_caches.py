"""What is known of kernels after each pass, against what is found out anew."""

from __future__ import annotations

from collections.abc import Hashable
from pathlib import Path

import pytest
from small_modules import H100, module_of

import hlo_opt
from hlo_opt.analysis.graph.cluster import Cluster
from hlo_opt.fusion import compatibility, state
from hlo_opt.fusion.caches import Cache, Caches
from hlo_opt.fusion.context import FuseOptions, PassContext
from hlo_opt.fusion.state import FusionState
from hlo_opt.ir import Instruction, Module
from hlo_opt.ir.walk import executed_computations
from hlo_opt.passes import parse_pipeline, preset
from hlo_opt.passes.base import Pass

DUMPS = Path(__file__).resolve().parents[2] / "testdata" / "dumps"
CACHES: tuple[Cache[object], ...] = (
    state.CLUSTER,
    state.TRAITS,
    state.LOWERING,
    state.ROWS,
    state.PLACES,
    state.EMITTER,
    compatibility.WALK,
)


def _said(value: object) -> Hashable:
    """A value without its nodes: a cluster by what it reads and holds, without inputs that nothing reads any more."""
    if isinstance(value, Cluster):
        read = {o.instruction for node in value.users_first for o in node.operands if o.is_input}
        return frozenset(read), frozenset(n.instruction for n in value.members), len(value.roots)
    if isinstance(value, dict):
        return tuple(value.items())
    if isinstance(value, tuple) and len(value) == 2:
        return value[0], value[1].opcode
    return value is None or repr(value)


def _stale(known: FusionState, module: Module) -> list[tuple[str, str]]:
    fresh = FusionState(module, H100)
    live = {i for c in executed_computations(module) for i in c.instructions}
    return [
        (i.name, repr(value))
        for cache in CACHES
        for i, value in list(known.caches.table(cache).items())
        if i in live and _said(value) != _said(fresh.caches.of(cache, i))
    ]


@pytest.mark.parametrize("name", ["default", "xla-2023", "xla-2026"])
@pytest.mark.parametrize("dump", ["attention", "adam", "batch_norm"])
def test_after_each_pass_what_is_known_is_what_would_be_found(name: str, dump: str):
    module = hlo_opt.parse((DUMPS / f"{dump}.hlo").read_text(encoding="utf-8"))
    context = PassContext(FuseOptions(H100))
    checked: list[str] = []

    def check(step: Pass, module: Module, changed: bool) -> None:
        known = context.memory._state
        if known is not None and changed:
            checked.append(step.name)
            assert _stale(known, module) == [], step.name

    parse_pipeline(preset(name)).last_choices().run(module, context, observer=check)
    assert checked


def test_what_a_change_leaves_is_declared():
    module = module_of("a = f32[8]{0} parameter(0)", "b = f32[8]{0} negate(a)")
    known, b = FusionState(module, H100), module.entry.root
    every = {
        named: Cache(lambda _, i: i.name, **({named: True} if named else {}))
        for named in ("", "grows", "settled", "in_copies")
    }

    def filled() -> Caches:
        caches = Caches(known)
        assert [caches.of(cache, b) for cache in every.values()] == ["b"] * 4
        return caches

    def left(caches: Caches, instruction: Instruction = b) -> set[str]:
        return {named for named, cache in every.items() if instruction in caches.table(cache)}

    caches = filled()
    caches.keep(b, growing=True)
    assert left(caches) == {"grows"}
    caches = filled()
    caches.keep(b, settled=True)
    assert left(caches) == {"settled"}
    caches.forget(b)
    assert left(caches) == set()
    (a,) = b.operands
    caches.copy_from(filled(), {b: a})
    assert left(caches, a) == {"in_copies"} and left(caches) == set()
