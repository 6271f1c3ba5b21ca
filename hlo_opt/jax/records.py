"""Records in the cache: a region's verdict, its program, and the decision about a whole module.

Each is a file, written atomically. If the cache cannot be written, records live only as long as the process.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import hlo_opt
from hlo_opt.diag import BackendError
from hlo_opt.evaluate.threads import processors
from hlo_opt.jax.wire import Replacement
from hlo_opt.runtime.host.compiler import cache_directory, find_compiler, processor
from hlo_opt.runtime.host.frozen import Frozen

if TYPE_CHECKING:
    from hlo_opt.jax.device import DeviceProgram


@dataclass(frozen=True)
class Verdict:
    """The verdict on a region: microseconds of our and XLA's kernels, or the code (`why`) and `text` of its refusal.
    `is_bound`: kernels of ours were not built, and `ours_us` is a time that they cannot be below.
    `low_us` and `high_us`: as in `measure.Times`. `tries`: how often it is timed again where these disagree."""

    ours_us: float = 0.0
    xla_us: float = 0.0
    why: str = ""
    text: str = ""
    is_bound: bool = False
    low_us: float = 0.0
    high_us: float = 0.0
    tries: int = 0

    @property
    def possible_us(self) -> tuple[float, ...]:
        """As `measure.Times.possible_us`."""
        return (self.ours_us, self.low_us, self.high_us) if self.high_us else (self.ours_us,)


@dataclass(frozen=True)
class Chosen:
    """A replacement, with the data of its line in the report. `region` is the instruction with the most work, `label`
    what the report calls the region."""

    change: Replacement
    region: str
    written: int
    ours_us: float
    xla_us: float
    label: str

    def place(self, of: Callable[[str, Iterable[str]], str]) -> str:
        """The Python line, by `Places.of`."""
        return of(self.change.computation, (self.region, *self.change.gone))


TRIES = 2
"""How often in a row the time may be up before a region gets a verdict, until those that are left are given up; and how
often a region is timed again where the machine was too busy to tell, until the last verdict stays."""


@dataclass(frozen=True)
class Choice:
    """The decision about a module: the regions that are replaced. `tries`: how often the rest is tried again, for which
    there was no time, or the machine was too busy to tell; 0 if there is no rest, or it is given up."""

    chosen: tuple[Chosen, ...]
    tries: int = 0


_verdicts: dict[str, Verdict] = {}
_frozen: dict[str, Frozen] = {}
_modules: dict[str, Choice] = {}


@cache
def environment() -> str:
    """The part of keys that is equal for all regions: a hash of this program, the compiler, the processor, the number
    of processors, and jaxlib's version."""
    root = Path(hlo_opt.__file__).parent
    command = find_compiler()
    digest = hashlib.sha256(f"{command} {processor(command)} {processors()} {version('jaxlib')}".encode())
    for path in sorted(p for p in root.rglob("*") if p.suffix in (".py", ".h", ".cpp", ".cuh", ".lark", ".toml")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def key_of(*parts: str) -> str:
    """The key for some texts in this environment."""
    return hashlib.sha256("\0".join((environment(), *parts)).encode()).hexdigest()[:40]


def _folder() -> Path:
    folder = cache_directory() / "jax"
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder


def _keep(name: str, data: bytes) -> None:
    """Writes a file, if that is possible."""
    temporary = ""
    try:
        with tempfile.NamedTemporaryFile(dir=_folder(), delete=False) as file:
            temporary = file.name
            file.write(data)
        os.replace(temporary, _folder() / name)
    except (OSError, BackendError):
        if temporary:
            Path(temporary).unlink(missing_ok=True)


def _kept(name: str) -> bytes | None:
    try:
        return (_folder() / name).read_bytes()
    except (OSError, BackendError):
        return None


def verdict_of(key: str) -> Verdict | None:
    """The verdict on a region, if there is one."""
    if key not in _verdicts and (data := _kept(f"{key}.verdict")) is not None:
        try:
            _verdicts[key] = Verdict(**json.loads(data))
        except (ValueError, TypeError):
            return None
    return _verdicts.get(key)


def keep_verdict(key: str, verdict: Verdict) -> None:
    _verdicts[key] = verdict
    _keep(f"{key}.verdict", json.dumps(asdict(verdict)).encode())


def frozen_of(key: str) -> Frozen | None:
    """The program of a region, if there is one."""
    if key not in _frozen and (data := _kept(f"{key}.program")) is not None:
        try:
            _frozen[key] = Frozen.unpacked(data)
        except ValueError:
            return None
    return _frozen.get(key)


def keep_frozen(key: str, program: Frozen) -> None:
    _frozen[key] = program
    _keep(f"{key}.program", program.packed())


def device_program_of(key: str) -> DeviceProgram | None:
    """The program of a region for a GPU, if there is one. Not cached in memory."""
    from hlo_opt.jax.device import DeviceProgram  # only processes with a GPU need it

    data = _kept(f"{key}.device")
    try:
        return None if data is None else DeviceProgram.unpacked(data)
    except ValueError:
        return None


def keep_device_program(key: str, program: DeviceProgram) -> None:
    _keep(f"{key}.device", program.packed())


def module_of(key: str) -> Choice | None:
    """The decision about a module, if there is one."""
    if key not in _modules and (data := _kept(f"{key}.module")) is not None:
        try:
            stored = json.loads(data)
            _modules[key] = Choice(tuple(map(_chosen, stored["chosen"])), int(stored["tries"]))
        except (ValueError, TypeError, KeyError):
            return None
    return _modules.get(key)


def _chosen(stored: dict[str, dict[str, str]]) -> Chosen:
    fields = {name: value for name, value in stored.items() if name != "change"}
    change = {name: tuple(v) if isinstance(v, list) else v for name, v in stored["change"].items()}
    return Chosen(change=Replacement(**change), **fields)  # type: ignore[arg-type]  # as JSON has it


def keep_module(key: str, choice: Choice) -> None:
    _modules[key] = choice
    _keep(f"{key}.module", json.dumps(asdict(choice)).encode())


def forget() -> None:
    """Clears the records in memory; the files stay."""
    _verdicts.clear()
    _frozen.clear()
    _modules.clear()


def generation() -> str:
    """A text that changes with each new record, for keys of executables that depend on the records."""
    try:
        return str(_folder().stat().st_mtime_ns)
    except (OSError, BackendError):
        return ""
