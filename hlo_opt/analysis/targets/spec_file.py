"""The GPU description of cost models and plans, and its reader for XLA's target configs.

A target config is a GpuTargetConfigProto in text format, as `--xla_gpu_target_config_filename` takes it; fields that
our model does not use are ignored. The text format reader supports plain messages and scalars, keeps fields in text
order and does not know their types; the caller asks for a number or a text. Input is untrusted: no recursion, and every
error has a position. Source: xla/backends/gpu/target_config/specs, xla/stream_executor/device_description.proto and
device_description.h (names of fields); the text format specification of protocol buffers.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, fields
from typing import ClassVar

from hlo_opt.diag import Source, Span, UsageError

MAX_CHARACTERS = 1 << 20
MAX_NUMBER = 40
"""The most characters of a number."""

_TOKEN = re.compile(
    r"""(?P<space>[\s]+|\#[^\n]*)
      |(?P<text>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')
      |(?P<number>-?(?:0[xX][0-9a-fA-F]+|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)[fF]?)
      |(?P<word>[A-Za-z_][A-Za-z0-9_]*)
      |(?P<extension>\[[A-Za-z0-9_./\s]+\])
      |(?P<mark>[-:{}<>,;\[\]])""",
    re.VERBOSE,
)
_CLOSING = {"{": "}", "<": ">"}


@dataclass(frozen=True, slots=True)
class Scalar:
    """A number, word or quoted text as written; in the tokenizer, any token."""

    kind: str
    written: str
    span: Span

    def number(self) -> float:
        """The value as a number. Raises UsageError, with position, for anything else."""
        if self.kind != "number" or len(self.written) > MAX_NUMBER:
            raise UsageError(f"expected a number, found {self.written[:MAX_NUMBER]}", span=self.span)
        plain = self.written.lstrip("-")
        if plain[:2] in ("0x", "0X"):
            value = float(int(plain, 16))
        else:
            value = float(plain.rstrip("fF"))
        return -value if self.written.startswith("-") else value

    def integer(self) -> int:
        """The value as an integer. Raises UsageError, with position, for anything else."""
        value = self.number()
        digits = self.written.lstrip("-")
        if value != int(value) or value in (float("inf"), float("-inf")):
            raise UsageError(f"expected a whole number, found {self.written}", span=self.span)
        exact = int(digits) if digits.isdecimal() else int(value)
        return -abs(exact) if self.written.startswith("-") else exact

    def text(self) -> str:
        """The text without quotes. Raises UsageError, with position, for anything else."""
        if self.kind != "text":
            raise UsageError(f"expected a quoted text, found {self.written}", span=self.span)
        return re.sub(r"\\(.)", r"\1", self.written[1:-1])


@dataclass(slots=True)
class Message:
    """Fields by name, with all their values."""

    span: Span
    fields: dict[str, list[Scalar | Message]] = field(default_factory=dict)

    def message(self, name: str) -> Message | None:
        """The message in a singular field; None where it is absent. Raises UsageError for a repeated field or a
        scalar."""
        field_value = self._one(name)
        if isinstance(field_value, Scalar):
            raise UsageError(f"{name} must be a message in braces", span=field_value.span)
        return field_value

    def scalar(self, name: str) -> Scalar | None:
        """The scalar in a singular field; None where it is absent. Raises UsageError for a repeated field or a
        message."""
        field_value = self._one(name)
        if isinstance(field_value, Message):
            raise UsageError(f"{name} must be a plain value, not a message", span=field_value.span)
        return field_value

    def _one(self, name: str) -> Scalar | Message | None:
        values = self.fields.get(name, [])
        if len(values) > 1:
            raise UsageError(f"{name} is given twice", span=values[1].span)
        return values[0] if values else None


def _tokens(source: Source) -> list[Scalar]:
    tokens: list[Scalar] = []
    at = 0
    while at < len(source.text):
        match = _TOKEN.match(source.text, at)
        if match is None:
            is_text = source.text[at] in "\"'"
            what = "this text does not end on its line" if is_text else "unexpected character"
            raise UsageError(what, span=Span(source, at, at + 1))
        kind = match.lastgroup or ""
        if kind != "space":
            tokens.append(Scalar(kind, match.group(), Span(source, at, match.end())))
        at = match.end()
    tokens.append(Scalar("end", "the end", Span(source, at, at)))
    return tokens


def parse(source: Source) -> Message:
    """Parse a message. Raises UsageError, with line and column, at the first fault."""
    if len(source.text) > MAX_CHARACTERS:
        raise UsageError(f"the file is longer than {MAX_CHARACTERS} characters", filename=source.filename)
    tokens = _tokens(source)
    top = Message(Span(source, 0, 0))
    open_messages: list[tuple[Message, str]] = [(top, "")]
    at = 0
    while True:
        token = tokens[at]
        message, closing = open_messages[-1]
        if token.kind == "end":
            if closing:
                raise UsageError(f"the message that begins here has no {closing}", span=message.span)
            return top
        if token.written == closing:
            open_messages.pop()
            at += 1
        elif token.kind in ("word", "extension"):
            at = _field(tokens, at, message, open_messages)
            continue
        else:
            raise UsageError(f"expected the name of a field, found {token.written}", span=token.span)
        at = _separator(tokens, at)


def _separator(tokens: list[Scalar], at: int) -> int:
    return at + 1 if tokens[at].written in (",", ";") else at


def _field(tokens: list[Scalar], at: int, message: Message, open_messages: list[tuple[Message, str]]) -> int:
    """Parse a field from its name on; a message is left open. Returns the position after what was parsed."""
    name = tokens[at].written
    at += 1
    colon = tokens[at].written == ":"
    if colon:
        at += 1
    values = message.fields.setdefault(name, [])
    token = tokens[at]
    if token.written in _CLOSING:
        inner = Message(token.span)
        values.append(inner)
        open_messages.append((inner, _CLOSING[token.written]))
        return at + 1
    if not colon:
        raise UsageError(f"{name} needs a colon and a value, or a message in braces", span=token.span)
    if token.written == "[" or token.kind == "extension":
        raise UsageError(f"{name} is a list, which device files do not use", span=token.span)
    value, at = _scalar(tokens, at)
    values.append(value)
    return _separator(tokens, at)


def _scalar(tokens: list[Scalar], at: int) -> tuple[Scalar, int]:
    token = tokens[at]
    if token.kind not in ("number", "word", "text"):
        raise UsageError(f"expected a value, found {token.written}", span=token.span)
    end = at + 1
    while token.kind == "text" and tokens[end].kind == "text":  # adjacent texts are concatenated
        end += 1
    if end == at + 1:
        return token, end
    return Scalar("text", f'"{"".join(t.written[1:-1] for t in tokens[at:end])}"', token.span), end


@dataclass(frozen=True)
class DeviceTarget:
    """A GPU as the cost model and the plans see it. Sizes are in bytes, bandwidth in bytes per second."""

    name: str
    title: str
    compute_capability: int
    memory_bandwidth: float
    core_count: int
    fpus_per_core: int
    clock_rate_ghz: float
    l2_cache_size: int
    threads_per_core_limit: int
    shared_memory_per_core: int
    shared_memory_per_block_optin: int
    device_memory_size: int
    shared_memory_per_block: int = 49152
    threads_per_block_limit: int = 1024
    threads_per_warp: int = 32
    registers_per_block_limit: int = 65536
    l1_cache_size_per_core: int = 2048
    """Deliberately tiny: what certainly stays in the L1 cache (xla/stream_executor/device_description.h)."""
    dram_transaction_bytes: int = 64
    bytes_per_core_and_clock: int = 32
    kernel_launch_us: float = 1.0
    copy_share: float = 0.88
    """The fraction of the peak bandwidth that a plain copy reaches: 3.0 of 3.35 TB/s on an H100, 4.18 of 4.8 on an
    H200, both measured."""
    l2_share: float = 2.0
    """The bandwidth of L2 over that of memory: XLA's model has 2.5, reads measured on an H100 1.7. An H200 has the same
    L2 with a quicker memory."""
    idle_load_us: float = 0.35
    """A load while memory is idle: some 700 cycles of an H200 (measured by pointer chasing)."""
    barrier_us: float = 1.36
    """A barrier of all blocks of a launch: each changes one word in L2 by an atomic operation, and polls it. Measured
    on an H200, two blocks on each multiprocessor."""
    clock_share: float = 0.98
    """The fraction of the highest clock rate that is reached under load: kernels that only compute issue 92 % of all
    instructions that an H200 could at 1.98 GHz."""
    in_lanes: ClassVar[bool] = False
    """Whether a CPU executes the threads as SIMD lanes."""

    @property
    def copied_per_second(self) -> float:
        """Bytes read plus written by a plain copy."""
        return self.copy_share * self.memory_bandwidth

    @property
    def lookups_per_second(self) -> float:
        """Cache lines that all multiprocessors look up: one a cycle each."""
        return self.core_count * self.clock_share * self.clock_rate_ghz * 1e9

    @property
    def resident_threads(self) -> int:
        """The number of threads that the device runs at a time."""
        return self.core_count * self.threads_per_core_limit

    @property
    def architecture(self) -> str:
        """NVRTC's name of the architecture: `sm_90`."""
        return f"sm_{self.compute_capability}"


@dataclass(frozen=True)
class InLanes(DeviceTarget):
    """A device whose threads a CPU executes as SIMD lanes.

    Neighbouring threads should then access neighbouring elements, and synchronisation costs more than longer threads.
    """

    in_lanes: ClassVar[bool] = True

    @classmethod
    def of(cls, device: DeviceTarget) -> InLanes:
        """The same device, executed in lanes."""
        return cls(**{f.name: getattr(device, f.name) for f in fields(DeviceTarget)})


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
    """The device that a target config describes. Raises UsageError, with line and column, for any other text."""
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
    """The compute capability as one number: 90 for 9.0."""
    capability = device.message("cuda_compute_capability")
    if capability is None:
        raise UsageError(
            "the device has no cuda_compute_capability", filename=filename, hint="only NVIDIA devices are modelled"
        )
    minor = capability.scalar("minor")
    return 10 * _positive_integer(capability, "major", filename) + (0 if minor is None else minor.integer())


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
