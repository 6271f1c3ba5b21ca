"""Jitted functions as modules of ours."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import hlo_opt.jax
from hlo_opt.text.frames import has_source_lines

X = np.random.default_rng(0).standard_normal((8, 16)).astype(np.float32)
TABLE = np.linspace(0, 1, X.size, dtype=np.float32).reshape(X.shape)


def softmax(x: Any) -> Any:
    e = jnp.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True) + TABLE


def test_lower_has_lines_and_constants() -> None:
    module = hlo_opt.jax.lower(jax.jit(softmax), X)
    assert has_source_lines(module)
    np.testing.assert_allclose(hlo_opt.evaluate(module, [X])[0], softmax(X), 1e-5, 1e-5)


def test_fuse_is_that_of_the_module() -> None:
    fused, decisions = hlo_opt.jax.fuse(jax.jit(softmax), X)
    assert decisions and any(d.fused for d in decisions)
    np.testing.assert_allclose(hlo_opt.evaluate(fused, [X])[0], softmax(X), 1e-5, 1e-5)


def test_explain_says_why() -> None:
    def function(x: Any) -> Any:
        return jnp.sin(x @ x.T) @ x

    report = hlo_opt.jax.explain(jax.jit(function), X)
    assert report.refused and all(d.reasons for d in report.refused)
    assert report.after.kernels <= report.before.kernels


def test_a_report_prints_a_line_for_each_refusal() -> None:
    report = hlo_opt.jax.explain(jax.jit(lambda x: jnp.fft.rfft(jnp.tanh(x) * 2)), X)
    figures, *lines = str(report).splitlines()
    assert figures in repr(report) and f"-> {report.after.kernels} kernels" in figures
    assert len(lines) == len(report.refused) > 0
    assert all(
        "test_modules.py:" in one and d.cause[0].code in one for one, d in zip(lines, report.refused, strict=True)
    )


def test_arguments_with_names_reach_jax() -> None:
    def function(x: Any, *, times: int) -> Any:
        return jnp.sin(x) * times

    jitted = jax.jit(function, static_argnames="times")
    assert hlo_opt.jax.explain(jitted, X, times=3).fused
    assert hlo_opt.jax.fuse(jitted, X, times=3)[1]
    np.testing.assert_allclose(hlo_opt.evaluate(hlo_opt.jax.lower(jitted, X, times=3), [X])[0], np.sin(X) * 3, 1e-5)


def test_the_room_has_its_names() -> None:
    assert {getattr(hlo_opt.jax, name).__name__ for name in dir(hlo_opt.jax)} == set(dir(hlo_opt.jax))
    assert hlo_opt.jax is __import__("sys").modules["hlo_opt.jax"]
