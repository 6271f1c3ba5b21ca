"""Equal reducers and comparators are one computation."""

from __future__ import annotations

import hlo_opt
from hlo_opt.passes import run

ADD = "{name} {{\n  {a} = {type}[] parameter(0)\n  {b} = {type}[] parameter(1)\n  ROOT r = {type}[] add({a}, {b})\n}}\n"


def computations(text: str) -> list[str]:
    module = hlo_opt.parse(text)
    made = run(module, passes="computation-deduplicator", simplify="never").module
    hlo_opt.verify(made)
    return [c.name for c in made.computations]


def reduces(first: str, second: str, kind: str = "f32") -> str:
    return (
        f"HloModule m\n{first}{second}ENTRY e {{\n  p = {kind}[4,8] parameter(0)\n  z = {kind}[] constant(0)\n"
        f"  x = {kind}[4] reduce(p, z), dimensions={{1}}, to_apply=one\n"
        f"  y = {kind}[8] reduce(p, z), dimensions={{0}}, to_apply=two\n"
        f"  ROOT t = ({kind}[4], {kind}[8]) tuple(x, y)\n}}\n"
    )


def test_names_do_not_matter() -> None:
    one, two = ADD.format(name="one", a="a", b="b", type="f32"), ADD.format(name="two", a="c", b="d", type="f32")
    assert computations(reduces(one, two)) == ["one", "e"]


def test_what_they_compute_does() -> None:
    one = ADD.format(name="one", a="a", b="b", type="f32")
    two = ADD.format(name="two", a="a", b="b", type="f32")
    for other in (two.replace("add", "maximum"), two.replace("add(a, b)", "add(b, a)")):
        assert computations(reduces(one, other)) == ["one", "two", "e"]


def test_how_many_values_they_take_does() -> None:
    one = (
        "one {\n  a = f32[] parameter(0)\n  b = f32[] parameter(1)\n  ROOT r = pred[] compare(a, b), direction=LT\n}\n"
    )
    two = one.replace("one", "two").replace("  ROOT", "  c = s32[] parameter(2)\n  d = s32[] parameter(3)\n  ROOT")
    text = (
        f"HloModule m\n{one}{two}ENTRY e {{\n  p = f32[8] parameter(0)\n  q = s32[8] parameter(1)\n"
        "  x = f32[8] sort(p), dimensions={0}, to_apply=one\n"
        "  y = (f32[8], s32[8]) sort(p, q), dimensions={0}, to_apply=two\n"
        "  ROOT t = (f32[8], (f32[8], s32[8])) tuple(x, y)\n}\n"
    )
    assert computations(text) == ["one", "two", "e"]


def test_bodies_of_calls_and_fusions_stay_apart() -> None:
    body = "{name} {{\n  a = f32[4] parameter(0)\n  ROOT r = f32[4] negate(a)\n}}\n"
    for caller in ("call(p), to_apply={}", "fusion(p), kind=kLoop, calls={}"):
        text = (
            f"HloModule m\n{body.format(name='one')}{body.format(name='two')}ENTRY e {{\n  p = f32[4] parameter(0)\n"
            f"  x = f32[4] {caller.format('one')}\n  y = f32[4] {caller.format('two')}\n"
            "  ROOT t = (f32[4], f32[4]) tuple(x, y)\n}\n"
        )
        assert computations(text) == ["one", "two", "e"]


def test_bodies_of_asynchronous_starts_stay_apart() -> None:
    body = "{name} {{\n  a = f32[] parameter(0)\n  ROOT r = f32[] negate(a)\n}}\n"
    text = (
        f"HloModule m\n{body.format(name='one')}{body.format(name='two')}{body.format(name='three')}"
        "ENTRY e {\n  p = f32[] parameter(0)\n"
        "  x = ((f32[]), f32[], u32[]) async-start(p), calls=one\n  y = f32[] async-done(x)\n"
        "  z = ((f32[]), f32[], u32[]) async-start(y), calls=two\n  w = f32[] async-done(z)\n"
        "  ROOT m = f32[] map(w), dimensions={}, to_apply=three\n}\n"
    )
    assert computations(text) == ["one", "two", "three", "e"]
