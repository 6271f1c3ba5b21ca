"""What an explanation holds as data."""

from __future__ import annotations

import gc
from pathlib import Path

import hlo_opt
from hlo_opt.passes import collector_paused, report_on, run


def test_the_dearest_edges_come_first_and_each_pair_of_kernels_once(dumps: Path) -> None:
    report = report_on(run(hlo_opt.parse((dumps / "mlp_train_step.hlo").read_text())))
    saved = [d.cost.us_saved * report.rounds.get(d.computation, 1) for d in report.dearest if d.cost is not None]
    assert len(saved) == len(report.dearest) > 2 and saved == sorted(saved, reverse=True)
    priced = [d for d in report.refused if d.cost is not None and all(r.code != "FUS132" for r in d.reasons)]
    assert saved[0] == max(d.cost.us_saved * report.rounds.get(d.computation, 1) for d in priced if d.cost is not None)
    kernels = [frozenset({d.producer_kernel, d.consumer_kernel}) for d in report.dearest]
    assert len(set(kernels)) == len(kernels)


def test_the_collector_is_left_as_it_was() -> None:
    was_on = gc.isenabled()
    try:
        for on in (True, False):
            (gc.enable if on else gc.disable)()
            with collector_paused():
                assert not gc.isenabled()
            assert gc.isenabled() is on
    finally:
        (gc.enable if was_on else gc.disable)()
