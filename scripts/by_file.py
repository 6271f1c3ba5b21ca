"""What scripts that sweep many modules share: processes that give memory back, and a file of
results that a sweep can go on from."""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

Row = dict[str, Any]
"""What comes out of a task, as JSON writes it."""
PER_PROCESS = 32
"""Tasks after which a process is started anew: starting one takes as long as a small module."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """`--jobs`, `--results` and `--resume`."""
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes at a time")
    parser.add_argument("--results", type=Path, metavar="FILE", help="append what comes out to FILE, a line each")
    parser.add_argument("--resume", action="store_true", help="leave out what FILE has")


def checked(parser: argparse.ArgumentParser, arguments: Sequence[str] | None) -> argparse.Namespace:
    """The options; without `--resume` the file of results is empty."""
    options = parser.parse_args(arguments)
    if options.resume and options.results is None:
        parser.error("--resume needs --results")
    if options.results is not None and not options.resume:
        options.results.write_text("", encoding="utf-8")
    return options


def each(work: Callable[..., Row], tasks: Iterable[tuple[Any, ...]], options: argparse.Namespace) -> Iterator[Row]:
    """What a function of a module gives for each task, as it comes; what the file of results has comes first. A task is
    the function's arguments, as JSON takes them."""
    done = dict(_done(options.results, work.__name__))
    left = []
    for task in tasks:
        if (known := done.get(json.dumps(task))) is None:
            left.append((work, task))
        else:
            yield known
    if not left:
        return
    with multiprocessing.get_context("spawn").Pool(min(options.jobs, len(left)), maxtasksperchild=PER_PROCESS) as pool:
        for task, row in pool.imap_unordered(_call, left):
            if options.results is not None:
                with options.results.open("a", encoding="utf-8") as file:
                    file.write(f"{json.dumps({'work': work.__name__, 'task': task, 'row': row})}\n")
            yield row


def _call(asked: tuple[Callable[..., Row], tuple[Any, ...]]) -> tuple[tuple[Any, ...], Row]:
    work, task = asked
    return task, work(*task)


def _done(results: Path | None, name: str) -> Iterator[tuple[str, Row]]:
    if results is not None and results.exists():
        for line in results.read_text(encoding="utf-8").splitlines():
            told = json.loads(line)
            if told["work"] == name:
                yield json.dumps(told["task"]), told["row"]


def files_of(paths: Iterable[str | Path]) -> list[Path]:
    """Files as they are, and the modules of folders, the smallest first."""
    found = [f for p in map(Path, paths) for f in (p.glob("*.hlo") if p.is_dir() else [p])]
    return sorted(found, key=lambda f: (f.stat().st_size, f.name))
