"""The keyword that gives arguments away: by name where the dump has all names, else by number."""

from __future__ import annotations

import pytest

from hlo_opt import parse
from hlo_opt.report.donating import donation_of


@pytest.mark.parametrize(
    ("names", "keyword"),
    [
        (["x"], "donate_argnames=('x',)"),
        (["state.params['w']", "state.params['b']", "opt[0]"], "donate_argnames=('state', 'opt')"),
        (["state['w']", ""], "donate_argnums=(0, 1)"),
        (["args[0]"], "donate_argnums=(0,)"),
        (["kwargs['x']"], "donate_argnums=(0,)"),
        (["argsort"], "donate_argnames=('argsort',)"),
        ([""], "donate_argnums=(0,)"),
        ([""] * 4, "donate_argnums=(*range(0, 4),)"),
        (["jit(f)/x"], "donate_argnums=(0,)"),
    ],
)
def test_keyword(names: list[str], keyword: str) -> None:
    inputs = [
        f"p{n} = f32[] parameter({n})" + (f', metadata={{op_name="{name}"}}' if name else "")
        for n, name in enumerate(names)
    ]
    results = ", ".join(f"p{n}" for n in range(len(names)))
    module = parse("HloModule m\n\nENTRY e {\n  " + "\n  ".join(inputs) + f"\n  ROOT t = tuple({results})\n}}\n")
    text = donation_of(module.entry.parameters)
    assert text == f"jax.jit(..., {keyword})"
    assert eval(text.partition("=")[2].removesuffix(")"))


def test_numbers_that_are_apart() -> None:
    inputs = "\n  ".join(f"p{n} = f32[] parameter({n})" for n in range(9))
    module = parse(f"HloModule m\n\nENTRY e {{\n  {inputs}\n  ROOT t = f32[] negate(p0)\n}}\n")
    some = [p for p in module.entry.parameters if p.parameter_number not in (1, 5)]
    assert donation_of(some) == "jax.jit(..., donate_argnums=(0, *range(2, 5), *range(6, 9)))"
