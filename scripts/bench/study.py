"""What the case study found, as data that a file keeps; `case_study` makes the page of it."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from scripts.bench.counted import Both, Counts, both_from, counts_from
from scripts.bench.host_vs_xla_cpu import Result
from scripts.bench.workloads import Machine


@dataclass(frozen=True)
class Row:
    """A form of the rollout: what it comes to on the device, and times on the CPU."""

    form: str
    device: Both
    timed: Result


@dataclass(frozen=True)
class Point:
    """A form with a number of environments: microseconds of a rollout on the CPU, by `host` and by XLA:CPU, and by
    price on the device, as XLA fuses it and as we do."""

    form: str
    environments: int
    steps: int
    host_us: float
    xla_cpu_us: float
    xla_device_us: float
    our_device_us: float

    def rate(self, us: float) -> float:
        """Steps of environments in a second."""
        return self.environments * self.steps / us * 1e6


@dataclass(frozen=True)
class Study:
    """All forms in one size, what XLA's rules make of one when its rule on concatenates is relaxed, and two forms in
    many sizes."""

    command: str
    machine: Machine
    environments: int
    steps: int
    rows: tuple[Row, ...]
    relaxed: Counts
    points: tuple[Point, ...]

    @property
    def work(self) -> int:
        """Steps of environments in a rollout."""
        return self.environments * self.steps

    def row(self, form: str) -> Row:
        """The row of a form."""
        return next(row for row in self.rows if row.form == form)

    def as_json(self) -> str:
        """For `from_json`."""
        return json.dumps(asdict(self), indent=1) + "\n"


def from_json(text: str) -> Study:
    """What `as_json` wrote."""
    found = json.loads(text)
    rows = tuple(Row(r["form"], both_from(r["device"]), Result(**r["timed"])) for r in found["rows"])
    points = tuple(Point(**p) for p in found["points"])
    size = found["environments"], found["steps"]
    return Study(found["command"], Machine(**found["machine"]), *size, rows, counts_from(found["relaxed"]), points)
