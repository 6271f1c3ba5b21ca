"""Without JAX there is nothing to test here; with it, each test begins and ends without a hook."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

pytest.importorskip("jax", reason="the extra jax is not installed")

import hlo_opt.jax
from hlo_opt.jax import decide, records


@pytest.fixture(autouse=True)
def without_hook() -> Iterator[None]:
    yield
    hlo_opt.jax.uninstall()


@pytest.fixture
def winning(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels of ours win by far, as it is said: what is tested is not how quick they are. Nothing is known of
    before."""
    for name in ("times", "compared"):
        monkeypatch.setattr(decide, name, lambda *_, **_kind: (1.0, 100.0))
    forgetful(monkeypatch)


@pytest.fixture
def uncompared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels of ours are taken without a run, so that only a program's own calls are counted."""
    monkeypatch.setattr(decide, "disagreement", lambda *_: None)


def forgetful(monkeypatch: pytest.MonkeyPatch) -> None:
    """Verdicts and decisions come from nowhere and go nowhere; programs are remembered by this process."""
    records.forget()
    for name in ("verdict_of", "module_of"):
        monkeypatch.setattr(records, name, lambda _: None)
    for name in ("keep_verdict", "keep_module"):
        monkeypatch.setattr(records, name, lambda *_: None)


@pytest.fixture
def empty_cache(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[], None]]:
    """A cache with nothing in it; calling it forgets what this process knows of it."""
    monkeypatch.setenv("HLO_OPT_CACHE", str(tmp_path_factory.mktemp("cache")))
    records.forget()
    yield records.forget
    records.forget()
