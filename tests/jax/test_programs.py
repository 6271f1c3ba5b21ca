"""Programs give the same under `jax.jit` with and without the hook."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import hlo_opt.jax
from scripts.bench.jax_hook import apart
from scripts.bench.other_programs import OTHERS
from scripts.programs import cartpole
from scripts.programs.case import Arg, Case
from scripts.xla_cpu import Leaf, sample_inputs

KEY = np.array([1, 2], np.uint32)


def normal(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def chained(x: Any) -> Any:
    return jnp.tanh(x * 2 + 1) * jnp.exp(-x * x)


def scanned(x: Any) -> Any:
    return lax.scan(lambda c, _: (jnp.sin(c) * 1.01 + 0.1, c.sum()), x, None, length=20)


def until(x: Any) -> Any:
    return lax.while_loop(lambda s: (s[1] < 40) & (s[0].max() < 50), lambda s: (s[0] * 1.5 + 0.1, s[1] + 1), (x, 0))


def loss(w: Any, x: Any) -> Any:
    return jnp.square(jax.nn.gelu(x @ w) + jnp.log1p(jnp.exp(x @ w))).mean()


def rolled(state: Any, key: Any) -> Any:
    return cartpole.scan_random(state, key, steps=5)


def read_twice(x: Any, w: Any) -> Any:
    """One region's only result goes into another region and into what stands between them."""
    y = lax.fori_loop(0, 5, lambda _, c: jnp.sin(c) + 1, x)
    return jnp.tanh(y @ w) + y


def product(x: Any, w: Any) -> Any:
    y = jax.nn.softmax(x * 3 + 1, axis=-1) @ w
    return jnp.where(y > 0, y, 0.1 * y) + jnp.cos(y)


PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "elementwise": (chained, (normal(64, 128),)),
    "scan": (scanned, (normal(512),)),
    "scan_small": (scanned, (normal(16),)),
    "while": (until, (normal(700),)),
    "vmap": (jax.vmap(lambda x: chained(x).sum() + x), (normal(64, 128),)),
    "gradient": (jax.grad(lambda x: chained(x).sum()), (normal(64, 128),)),
    "gradient_of_scan": (jax.grad(lambda x: scanned(x)[0].sum()), (normal(512),)),
    "gradient_of_products": (jax.grad(loss), (normal(32, 48), normal(64, 32, seed=1))),
    "vmap_of_gradient": (jax.vmap(jax.grad(lambda x: scanned(x)[0].sum())), (normal(8, 64),)),
    "hessian": (jax.hessian(lambda x: jnp.sum(jnp.sin(x) * x**3)), (normal(24),)),
    "remat": (jax.grad(jax.checkpoint(lambda x: chained(chained(x)).sum())), (normal(64, 128),)),
    "jit_in_jit": (lambda x: jax.jit(chained)(x) + jax.jit(chained)(x + 1), (normal(64, 128),)),
    "scan_in_scan": (lambda x: lax.scan(lambda c, _: (scanned(c)[0], None), x, None, length=3)[0], (normal(256),)),
    "cond": (lambda x: lax.cond(x.sum() > 0, chained, scanned_once, x), (normal(64, 128),)),
    "switch": (lambda n, x: lax.switch(n, [chained, scanned_once, jnp.sin], x), (np.int32(1), normal(64, 128))),
    "product_between": (product, (normal(64, 32), normal(32, 48, seed=1))),
    "read_twice": (read_twice, (normal(64, 32), normal(32, 32, seed=1))),
    "random": (lambda key: jax.random.normal(key, (64, 64)), (KEY,)),
    "rollout": (rolled, (normal(128, 4) * 0.01, KEY)),
    "bf16": (lambda x: chained(x.astype(jnp.bfloat16)), (normal(64, 128),)),
    "f16": (lambda x: (x.astype(jnp.float16) * 3 + 1).sum(0), (normal(64, 128),)),
    "integers": (lambda x: (x.astype(jnp.int32) << 3) ^ 5, (normal(64, 128) * 9,)),
    "small_types": (lambda x: (x > 0, (x * 9).astype(jnp.int8), (x[:7] > 0.5)), (normal(1001),)),
    "complex": (lambda x: jnp.abs(x + 1j * x**2), (normal(64, 128),)),
    "transposed": (lambda x: (jnp.cos(x).T * 2 + 1, x.sum(0)), (normal(64, 96),)),
    "empty": (lambda x: (x[:0] + 1, chained(x)), (normal(64, 128),)),
    "used_twice": (lambda x: (x, jnp.sin(x) + 1, x * 2), (normal(64, 128),)),
    "callback": (
        lambda x: jax.pure_callback(np.sin, jax.ShapeDtypeStruct(x.shape, x.dtype), chained(x)) * 2,
        (normal(64, 128),),
    ),
}


def scanned_once(x: Any) -> Any:
    return jnp.sin(x) * 1.01 + 0.1


@pytest.mark.usefixtures("winning")
@pytest.mark.parametrize("name", PROGRAMS)
def test_results_are_equal(name: str) -> None:
    function, arguments = PROGRAMS[name]
    expected = jax.tree.leaves(jax.jit(function)(*arguments))
    with hlo_opt.jax.fusing(min_saving_us=0, wait=True) as report:
        found = jax.tree.leaves(jax.jit(function)(*arguments))
    assert report.replaced, str(report)
    assert report.count("JAX303") == 0, str(report)
    for ours, theirs in zip(found, expected, strict=True):
        assert (ours.shape, ours.dtype) == (theirs.shape, theirs.dtype)
        wide = np.complex128 if np.iscomplexobj(theirs) else np.float64
        coarse = 2e-2 if theirs.dtype == jnp.bfloat16 else 3e-3 if theirs.dtype == jnp.float16 else 2e-5
        np.testing.assert_allclose(np.asarray(ours).astype(wide), np.asarray(theirs).astype(wide), coarse, coarse)


def drawn(case: Case) -> tuple[Any, ...]:
    """The arguments of a program, drawn."""
    leaves, structure = jax.tree.flatten(case.args, is_leaf=lambda x: isinstance(x, Arg))
    given = [Leaf(a.shape, np.dtype(jnp.dtype(a.dtype)), a.low, a.high) for a in leaves]
    return tuple(jax.tree.unflatten(structure, sample_inputs(given, seed=0)))


@pytest.mark.usefixtures("winning")
@pytest.mark.parametrize("case", OTHERS, ids=lambda case: case.name)
@pytest.mark.sweep
def test_other_programs_give_the_same(case: Case) -> None:
    arguments = drawn(case)
    expected = jax.jit(case.function)(*arguments)
    with hlo_opt.jax.fusing(min_saving_us=0, wait=True) as report:
        found = jax.jit(case.function)(*arguments)
    assert report.replaced and report.count("JAX303") == 0, str(report)
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    same = [
        (a.shape, a.dtype) == (b.shape, b.dtype) for a, b in zip(*map(jax.tree.leaves, (found, expected)), strict=True)
    ]
    assert all(same)
    assert apart(found, expected) <= 2e-5


@pytest.mark.parametrize(
    "body",
    [
        # cut by the compiler, with a gradient through a sum over devices
        """
        placed = jax.sharding.NamedSharding(mesh, P("d"))
        call = jax.jit(jax.grad(lambda x: jnp.log(jnp.square(f(x)).sum())), in_shardings=placed, out_shardings=placed)
        """,
        """
        call = jax.jit(jax.shard_map(lambda x: f(x) - jax.lax.pmean(f(x), "d"), mesh=mesh, in_specs=P("d"), out_specs=P("d")))
        """,
        """
        own = lambda x: f(jax.lax.ppermute(f(x), "d", [(n, (n + 1) % count) for n in range(count)])) * 2
        call = jax.jit(jax.shard_map(own, mesh=mesh, in_specs=P("d"), out_specs=P("d")))
        """,
        """
        call = lambda x: jax.pmap(lambda x: f(x) / jax.lax.psum(jnp.abs(x).sum() + 1, "d"), "d")(x.reshape(count, -1))
        """,
    ],
    ids=["jit", "shard_map", "permuted", "pmap"],
)
@pytest.mark.parametrize("count", [1, 4])
@pytest.mark.sweep
def test_each_device_runs_its_module(body: str, count: int) -> None:
    """In a process of its own: the number of devices is fixed when JAX starts."""
    from snippets import HEAD, run

    head = HEAD + (
        f"count = {count}\n"
        "P = jax.sharding.PartitionSpec\n"
        'mesh = jax.sharding.Mesh(np.array(jax.devices()), ("d",))\n'
        "f = lambda x: jax.lax.scan(lambda c, _: (jnp.sin(c) * 1.01 + 0.1, None), x, None, length=20)[0]\n"
    )
    done = run(
        textwrap.dedent(body)
        + textwrap.dedent(
            """
            x = np.arange(4096, dtype=np.float32) / 4096
            assert len(jax.devices()) == count
            expected = np.asarray(call(x))
            with hlo_opt.jax.fusing(min_saving_us=0, wait=True) as report:
                found = np.asarray(call(x))
            from hlo_opt.jax.handler import handler
            assert report.replaced and not report.count("JAX303"), report
            assert handler().calls >= count, handler().calls
            assert np.allclose(found, expected, 1e-5, 1e-5), np.abs(found - expected).max()
            """
        ),
        head,
        XLA_FLAGS=f"--xla_force_host_platform_device_count={count}",
    )
    assert done == ""


@pytest.mark.usefixtures("winning")
def test_several_devices_run_it_each() -> None:
    """In a process of its own: the number of devices is fixed when JAX starts."""
    from snippets import run

    done = run(
        """
        jax.config.update("jax_num_cpu_devices", 4)
        mesh = jax.sharding.Mesh(np.array(jax.devices()), ("d",))
        placed = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("d"))
        x = jax.device_put(np.arange(4096, dtype=np.float32) / 4096, placed)
        f = lambda x: jax.lax.scan(lambda c, _: (jnp.sin(c) * 1.01 + 0.1, None), x, None, length=20)[0]
        expected = jax.jit(f)(x)
        with hlo_opt.jax.fusing(min_saving_us=0, wait=True) as report:
            found = jax.jit(f)(x)
        from hlo_opt.jax.handler import handler
        assert np.allclose(found, expected, 1e-5, 1e-5)
        assert report.replaced, report
        assert handler().calls >= 4, handler().calls
        """
    )
    assert done == ""


def _left(state: Any, x: Any) -> Any:
    return state[0] ** 2 - x


def _through_a_loop(state: Any, x: Any) -> Any:
    return lax.fori_loop(0, 5, lambda _, c: c * 0.5 + _left(state, x), jnp.float32(0))


def _in_order(state: Any, x: Any) -> Any:
    return lax.sort(jnp.stack([_left(state, x), x * 2 + state[0], state[0] * 3.3 + x, x + 1]))[0]


ENDINGS: dict[str, tuple[Callable[[Any, Any], Any], bool]] = {
    "truth value": (lambda state, x: jnp.abs(_left(state, x)) > 1e-5 * x, True),
    "integer": (lambda state, x: ((jnp.abs(_left(state, x)) - 1e-5 * x) * 1e9).astype(int) > 0, True),
    "bits": (lambda state, x: lax.bitcast_convert_type(1e-5 * x - jnp.abs(_left(state, x)), jnp.int32) < 0, True),
    "complex": (lambda state, x: lax.complex(jnp.maximum(jnp.abs(_left(state, x)) - 1e-5 * x, 0), x * 0) != 0, True),
    "place": (lambda state, x: jnp.argmax(jnp.array([1e-5 * x, _left(state, x), -_left(state, x)])) > 0, True),
    "through a loop": (lambda state, x: jnp.abs(_through_a_loop(state, x)) > 1e-5 * x, True),
    "through a library's sort": (lambda state, x: jnp.abs(_in_order(state, x)) > 1e-5 * x, True),
    "integers alone": (lambda state, x: state[1] < x.astype(int) % 7, False),
}


@pytest.mark.usefixtures("winning")
@pytest.mark.parametrize(("goes_on", "floats"), ENDINGS.values(), ids=ENDINGS)
def test_what_a_loop_ends_by_is_rounded_in_one_way(goes_on: Callable[[Any, Any], Any], floats: bool) -> None:
    """XLA rounds `s * s - x` once: one of these roots was done for the body and not for the condition, for ever."""

    def root(x: Any) -> Any:
        state = (x, 0)
        return lax.while_loop(
            lambda state: goes_on(state, x), lambda state: (0.5 * (state[0] + x / state[0]), state[1] + 1), state
        )

    x = jnp.linspace(0.1, 500, 1999)
    with hlo_opt.jax.fusing(min_saving_us=0, wait=True) as report:
        compiled = jax.jit(jax.vmap(root)).lower(x).compile()
    feeds_a_sort = any("concatenate" in each.region for each in report.replaced)
    assert bool(report.count("JAX211")) == floats and not feeds_a_sort, str(report)  # else it may not end
    np.testing.assert_allclose(compiled(x)[0], jax.vmap(root)(x)[0], 1e-6)
