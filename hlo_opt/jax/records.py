"""What is kept beside the kernels in the cache: a region's verdict and its program, and what was decided about a whole
module.

Each is a file of its own, written whole or not at all. A cache that cannot be written is one that remembers for this
process only.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from dataclasses import asdict, dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path

import hlo_opt
from hlo_opt.evaluate.threads import processors
from hlo_opt.jax.device import DeviceProgram
from hlo_opt.jax.wire import Replacement
from hlo_opt.runtime.host.frozen import Frozen
from hlo_opt.runtime.host.library import cache_directory, find_compiler, processor


@dataclass(frozen=True)
class Verdict:
    """What is known of a region. `why` is the code of the line that refuses it, with its text; empty for one that was
    timed, in microseconds."""

    ours_us: float = 0.0
    xla_us: float = 0.0
    why: str = ""
    text: str = ""


@dataclass(frozen=True)
class Chosen:
    """A replacement with what the report says of it."""

    change: Replacement
    region: str
    written: int
    ours_us: float
    xla_us: float


_verdicts: dict[str, Verdict] = {}
_frozen: dict[str, Frozen] = {}
_modules: dict[str, tuple[Chosen, ...]] = {}


@cache
def environment() -> str:
    """What a key must hold besides a region: this program, the compiler, the processor and how much of it may be used,
    jaxlib."""
    root = Path(hlo_opt.__file__).parent
    command = find_compiler()
    found = hashlib.sha256(f"{command} {processor(command)} {processors()} {version('jaxlib')}".encode())
    for path in sorted(p for p in root.rglob("*") if p.suffix in (".py", ".h", ".cpp", ".cuh", ".lark", ".toml")):
        found.update(path.read_bytes())
    return found.hexdigest()


def key_of(*parts: str) -> str:
    """The key of what parts say, here."""
    return hashlib.sha256("\0".join((environment(), *parts)).encode()).hexdigest()[:40]


def _folder() -> Path:
    found = cache_directory() / "jax"
    found.mkdir(mode=0o700, exist_ok=True)
    return found


def _keep(name: str, data: bytes) -> None:
    """Keep a file, where that is possible."""
    temporary = ""
    try:
        with tempfile.NamedTemporaryFile(dir=_folder(), delete=False) as file:
            temporary = file.name
            file.write(data)
        os.replace(temporary, _folder() / name)
    except OSError:
        if temporary:
            Path(temporary).unlink(missing_ok=True)


def _kept(name: str) -> bytes | None:
    try:
        return (_folder() / name).read_bytes()
    except OSError:
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
    """The program of a region for a GPU, if there is one; who asks keeps it."""
    data = _kept(f"{key}.device")
    try:
        return None if data is None else DeviceProgram.unpacked(data)
    except ValueError:
        return None


def keep_device_program(key: str, program: DeviceProgram) -> None:
    _keep(f"{key}.device", program.packed())


def module_of(key: str) -> tuple[Chosen, ...] | None:
    """What was chosen in a module, if that was decided."""
    if key not in _modules and (data := _kept(f"{key}.module")) is not None:
        try:
            _modules[key] = tuple(_chosen(each) for each in json.loads(data))
        except (ValueError, TypeError, KeyError):
            return None
    return _modules.get(key)


def _chosen(stored: dict[str, dict[str, str]]) -> Chosen:
    given = {name: value for name, value in stored.items() if name != "change"}
    change = {name: tuple(v) if isinstance(v, list) else v for name, v in stored["change"].items()}
    return Chosen(change=Replacement(**change), **given)  # type: ignore[arg-type]  # as JSON has it


def keep_module(key: str, chosen: tuple[Chosen, ...]) -> None:
    _modules[key] = chosen
    _keep(f"{key}.module", json.dumps([asdict(each) for each in chosen]).encode())


def forget() -> None:
    """Forget what this process knows; the files stay."""
    _verdicts.clear()
    _frozen.clear()
    _modules.clear()


def generation() -> str:
    """Another text whenever something was decided: executables of before lack it."""
    try:
        return str(_folder().stat().st_mtime_ns)
    except OSError:
        return ""
