"""Work on processes and on a Dask cluster."""

from __future__ import annotations

import builtins
import logging
import os
import sys
from collections.abc import Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from pathlib import Path

import pytest

from hlo_opt.cli.group import run
from hlo_opt.diag import EvaluationError, UsageError
from hlo_opt.tune import tune
from hlo_opt.tune.workers import StartedCall, cluster, processes

TEXT = """HloModule m

ENTRY e {
  p = f32[64]{0} parameter(0)
  a = f32[64]{0} negate(p)
  ROOT b = f32[64]{0} tanh(a)
}
"""


def test_work_is_done_here_when_its_result_is_asked_for() -> None:
    done: list[int] = []
    work = StartedCall.of(None, done.append, 1)
    work.cancel()
    assert done == [] and work.result() is None and done == [1]


def test_work_that_has_not_begun_can_be_left() -> None:
    class Never(Executor):
        def submit(self, fn, /, *args, **kwargs):  # type: ignore[no-untyped-def]
            from concurrent.futures import Future

            return Future()

    work = StartedCall.of(Never(), len, "abc")
    work.cancel()
    assert work.future is not None and work.future.cancelled()
    with ThreadPoolExecutor(1) as executor:
        assert StartedCall.of(executor, len, "abc").result() == 3


def test_processes_do_work_and_one_that_dies_is_told() -> None:
    with processes(1) as executor:
        assert StartedCall.of(executor, os.getpid).result() != os.getpid()
        with pytest.raises(EvaluationError, match=r"HLO342 a process died"):
            StartedCall.of(executor, os._exit, 3).result()


def test_without_the_package_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def missing(name: str, *rest: object) -> object:
        if name == "distributed":
            raise ImportError(name)
        return real(name, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(UsageError, match=r"(?s)HLO352 .*pip install 'hlo-opt\[fleet\]'"), cluster("tcp://127.0.0.1:1"):
        pass


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """The address of a scheduler with two processes of this machine."""
    distributed = pytest.importorskip("distributed", reason="the extra `fleet` is not installed: no cluster is tested")
    # Processes of the cluster start anew, and find the package where this one does.
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    try:
        with distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None, silence_logs=logging.CRITICAL
        ) as local:
            yield local.scheduler_address
    finally:
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before


def test_a_cluster_finds_what_this_process_finds(address: str) -> None:
    alone = tune(TEXT, trials=24)
    with cluster(address) as executor:
        assert StartedCall.of(executor, os.getpid).result() != os.getpid()
        found = tune(TEXT, trials=24, executor=executor)
    assert (found.setting, found.after, found.trials) == (alone.setting, alone.after, alone.trials)


def test_verbs_take_a_scheduler(address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd) -> None:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "d"
    folder.mkdir()
    for name in ("a", "b"):
        (folder / f"{name}.hlo").write_text(TEXT)
    (folder / "bad.hlo").write_text("HloModule m\n nothing")
    assert run(["fuse", "d", "--scheduler", address, "-o", "out"]) == 2
    done = capfd.readouterr()
    assert sorted(os.listdir("out")) == ["a.hlo", "b.hlo"] and "d: 3 modules" in done.out
    assert "d/bad.hlo:2:" in done.err and "HLO100" in done.out
    assert run(["tune", "d/a.hlo", "--scheduler", address, "--trials", "8", "--save", "far.toml"]) == 0
    assert run(["tune", "d/a.hlo", "--jobs", "1", "--trials", "8", "--save", "here.toml"]) == 0
    assert Path("far.toml").read_text() == Path("here.toml").read_text()
    assert run(["tune", "d/a.hlo", "--scheduler", address, "--by", "time", "--backend", "host"]) == 2
    assert "times settings on this machine" in capfd.readouterr().err


def test_no_scheduler_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("distributed", reason="the extra `fleet` is not installed: no cluster is tested")
    monkeypatch.setattr("hlo_opt.tune.workers.PATIENCE_S", 0.5)
    for nowhere in ("tcp://127.0.0.1:1", "nothing://x"):
        with pytest.raises(UsageError, match="HLO353 no scheduler answers at"), cluster(nowhere):
            pass
