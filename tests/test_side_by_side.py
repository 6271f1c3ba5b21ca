"""Processes of a script that share a list."""

from __future__ import annotations

import json
from pathlib import Path
from threading import Thread

from scripts.bench.side_by_side import Queue, started


def test_each_item_is_taken_once(tmp_path: Path) -> None:
    taken: list[int] = []
    inside: list[int] = []

    def take() -> None:
        queue = Queue(tmp_path, 40)
        for number in queue:
            with queue.alone():
                inside.append(1)
                assert len(inside) == 1
                taken.append(number)
                inside.pop()

    threads = [Thread(target=take) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(taken) == list(range(40))


def test_a_process_that_writes_nothing_is_left_out(tmp_path: Path) -> None:
    parts = started("tests.test_side_by_side", ["--only", "a"], tmp_path, 2, 30.0)
    assert parts == [{"arguments": ["--only", "a"]}] * 2
    assert started("tests.test_side_by_side", ["--fails"], tmp_path / "none", 1, 30.0) == []


if __name__ == "__main__":
    import sys

    *own, _, _, _, file = sys.argv[1:]
    if "--fails" not in own:
        Path(file).write_text(json.dumps({"arguments": own}), encoding="utf-8")
