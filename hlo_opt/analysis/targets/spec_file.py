"""Devices from XLA's own spec files: a GpuTargetConfigProto in text format, as `--xla_gpu_target_config_filename` takes it.

Source: xla/backends/gpu/target_config/specs, xla/stream_executor/device_description.proto. Fields that our model does not read are passed over.
"""

from __future__ import annotations

from hlo_opt.analysis.targets.device import DeviceTarget
from hlo_opt.analysis.targets.text_proto import Message, parse
from hlo_opt.diag import Source, UsageError

SUFFIXES = (".txtpb", ".textproto", ".pbtxt")

_INTEGERS = (
    "core_count",
    "fpus_per_core",
    "l2_cache_size",
    "threads_per_core_limit",
    "shared_memory_per_core",
    "shared_memory_per_block",
    "shared_memory_per_block_optin",
    "device_memory_size",
    "threads_per_block_limit",
    "threads_per_warp",
    "registers_per_block_limit",
)


def read_spec(name: str, text: str, filename: str) -> DeviceTarget:
    """The device that a spec file describes. Raises UsageError, with line and column, for a text that is none."""
    top = parse(Source(text, filename))
    device = top.message("gpu_device_info")
    if device is None:
        if "core_count" not in top.fields:
            raise UsageError("the file has no gpu_device_info", filename=filename)
        device = top
    capability = _capability(device, filename)
    numbers = {key: _positive_integer(device, key, filename) for key in _INTEGERS}
    return DeviceTarget(
        name=name,
        title=_title(top, device, name),
        compute_capability=capability,
        memory_bandwidth=_positive(device, "memory_bandwidth", filename),
        clock_rate_ghz=_positive(device, "clock_rate_ghz", filename),
        **numbers,
    )


def _capability(device: Message, filename: str) -> int:
    """Major and minor version as one number: 90 for 9.0."""
    found = device.message("cuda_compute_capability")
    if found is None:
        raise UsageError(
            "the device has no cuda_compute_capability", filename=filename, hint="only NVIDIA devices are modelled"
        )
    minor = found.scalar("minor")
    return 10 * _positive_integer(found, "major", filename) + (0 if minor is None else minor.integer())


def _positive(message: Message, key: str, filename: str) -> float:
    value = message.scalar(key)
    if value is None:
        raise UsageError(f"the device lacks {key}", filename=filename)
    number = value.number()
    if not 0 < number < float("inf"):
        raise UsageError(f"{key} must be positive, not {value.written}", span=value.span)
    return number


def _positive_integer(message: Message, key: str, filename: str) -> int:
    _positive(message, key, filename)
    value = message.scalar(key)
    assert value is not None
    return value.integer()


def _title(top: Message, device: Message, name: str) -> str:
    for message, key in ((top, "device_description_str"), (device, "name")):
        value = message.scalar(key)
        if value is not None:
            return value.text()
    return name
