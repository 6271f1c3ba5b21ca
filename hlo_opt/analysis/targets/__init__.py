"""Device targets: one TOML file each, read on demand; or a user's file, in TOML or as an XLA target config."""

from __future__ import annotations

import tomllib
from dataclasses import MISSING, fields
from functools import cache
from importlib import resources
from pathlib import Path

from hlo_opt.analysis.targets.spec_file import SUFFIXES, DeviceTarget, InLanes, read_spec
from hlo_opt.diag import UsageError, did_you_mean
from hlo_opt.ir import Module

MAX_BYTES = 1 << 20
DEFAULT_TARGET = "h100_sxm"
"""The device used when none is given."""


__all__ = ["DEFAULT_TARGET", "DeviceTarget", "InLanes", "target", "target_names", "target_of"]


def target_of(module: Module, wanted: str | DeviceTarget | None = None) -> DeviceTarget:
    """The device that kernels of a module are generated for: `wanted`, else the one it was fused for, else the default.
    Raises as `target`."""
    if wanted is None:
        wanted = module.target if isinstance(module.target, DeviceTarget) else DEFAULT_TARGET
    return target(wanted) if isinstance(wanted, str) else wanted


def target_names() -> list[str]:
    """The names of the built-in devices, sorted."""
    return sorted(f.name.removesuffix(".toml") for f in resources.files(__name__).iterdir() if f.name.endswith(".toml"))


@cache
def target(name: str) -> DeviceTarget:
    """The built-in device of a name, or the device that a file describes: TOML, or an XLA target config (`.txtpb`,
    `.textproto`, `.pbtxt`).

    The name of a chip with several variants (`a100`) means the one with the fastest memory. Capitals do not matter.
    Raises UsageError, which names the nearest name, for an unknown device, and for a file that does not describe one.
    """
    if name.endswith((".toml", *SUFFIXES)):
        path = Path(name)
        try:
            with path.open("rb") as file:
                content = file.read(MAX_BYTES + 1)
            text = content.decode("utf-8")
        except (OSError, UnicodeDecodeError, ValueError) as fault:
            raise UsageError("the device file cannot be read", filename=name) from fault
        if len(content) > MAX_BYTES:
            raise UsageError(f"the device file is longer than {MAX_BYTES} bytes", filename=name)
        return _read(path.stem, text, name) if name.endswith(".toml") else read_spec(path.stem, text, name)
    if name != name.lower():
        return target(name.lower())
    known = target_names()
    if name not in known and (family := _family(name, known)):
        return max((target(member) for member in family), key=lambda device: (device.memory_bandwidth, device.name))
    if name not in known:
        others = f"known: {', '.join(known)}; or the path of a .toml or .txtpb file"
        chips = [member.partition("_")[0] for member in known]
        raise UsageError(f"there is no target {name!r}", hint=did_you_mean(name, [*known, *chips]) or others)
    return _read(name, (resources.files(__name__) / f"{name}.toml").read_text(encoding="utf-8"), name)


def _family(name: str, known: list[str]) -> list[str]:
    """The variants of one chip, by the chip's name: `a100`."""
    return [member for member in known if member.startswith(f"{name}_")]


_KINDS: dict[str, tuple[type, ...]] = {"str": (str,), "int": (int,), "float": (int, float)}


def _read(name: str, text: str, filename: str) -> DeviceTarget:
    try:
        values = tomllib.loads(text)
    except (ValueError, RecursionError) as fault:  # TOMLDecodeError is a ValueError; so is the fault of a huge number
        raise UsageError(f"not TOML: {fault}", filename=filename) from fault
    known = {f.name: f for f in fields(DeviceTarget) if f.name != "name"}
    for key, value in values.items():
        if key not in known:
            raise UsageError(f"a device has no {key!r}", filename=filename, hint=did_you_mean(key, known))
        wanted = _KINDS[str(known[key].type)]
        if not isinstance(value, wanted) or isinstance(value, bool):
            raise UsageError(f"{key} must be {known[key].type}, not {value!r}", filename=filename)
        if isinstance(value, (int, float)) and not 0 < value < float("inf"):
            raise UsageError(f"{key} must be positive, not {value!r}", filename=filename)
    missing = [n for n, f in known.items() if f.default is MISSING and n not in values]
    if missing:
        raise UsageError(f"the device lacks {', '.join(missing)}", filename=filename)
    return DeviceTarget(name, **values)
