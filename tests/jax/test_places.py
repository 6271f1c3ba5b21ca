"""The Python lines of a module, from its bytes, and in the report."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jaxlib import _hlo

import hlo_opt.jax
from hlo_opt.jax import decide, records
from hlo_opt.jax.places import Places
from hlo_opt.jax.wire import ModuleBytes
from hlo_opt.text import parse
from hlo_opt.text.frames import source_location

X = np.random.default_rng(0).standard_normal((64, 128)).astype(np.float32)


def function(x: Any) -> Any:
    def step(c: Any, _: None) -> Any:
        return jnp.sin(c) * 1.01 + 0.1, None

    return jax.nn.softmax(lax.scan(step, x, None, length=50)[0], -1)


def compared(message: bytes) -> set[str]:
    """The places of all instructions, by both ways."""
    options = _hlo.HloPrintOptions()
    options.print_metadata = True
    text = parse(_hlo.HloModule.from_serialized_hlo_module_proto(message).to_string(options))
    places, found = Places(ModuleBytes(message)), set()
    for computation in text.computations:
        for i in computation.instructions:
            place = places.of(computation.name, (i.name,))
            assert place == source_location(text, i), i.name
            found.add(place)
    return found


def test_lines_are_those_of_the_text() -> None:
    module = jax.jit(function).lower(X).compiler_ir("hlo").get_hlo_module()  # type: ignore[union-attr]
    found = compared(module.as_serialized_hlo_module_proto())
    line = function.__code__.co_firstlineno
    assert {f"{__file__}:{line + 2}", f"{__file__}:{line + 4}", ""} <= found


def test_lines_without_tables_and_unknown_names() -> None:
    text = """HloModule m

ENTRY e {
  x = f32[4] parameter(0)
  a = f32[4] sine(x), metadata={op_name="y" source_file="train.py" source_line=7}
  b = f32[4] cosine(a), metadata={stack_frame_id=9}
  ROOT c = f32[4] negate(b), metadata={op_name="c"}
}
"""
    message = _hlo.hlo_module_from_text(text).as_serialized_hlo_module_proto()
    assert compared(message) == {"", "train.py:7"}
    places = Places(ModuleBytes(message))
    assert places.of("e", ("x", "no such", "b", "a")) == "train.py:7"
    assert places.of("no such", ("a",)) == ""


def test_the_report_says_lines_found_or_kept(empty_cache: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("times", "compared"):
        monkeypatch.setattr(decide, name, lambda *_, **_kind: (1.0, 100.0))
    for code in ("JAX402", "JAX401"):
        with hlo_opt.jax.fusing(min_saving_us=0, wait=True) as report:
            jax.jit(function).lower(X).compile()
        records.forget()
        assert report.count(code) == len(report.replaced) > 0, str(report)
        for each in report.lines:
            assert each.source.startswith(f"{__file__}:") and f"{Path(__file__).name}:" in str(each)
    monkeypatch.chdir(Path(__file__).parent)
    assert f" ({Path(__file__).name}:" in str(report)
