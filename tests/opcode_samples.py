"""One line of text for each opcode of the op table, with every attribute that it takes, and another text for each of
these.

A row of `SAMPLES` is: opcode, shapes of the operands, shape of the result, attributes. An attribute is
`name: (text, other text)`, always two texts that mean different things; None stands for one that is not written.
Layouts are left out where they are row-major. `in_xla=False` marks an opcode that XLA does not have.
"""

from __future__ import annotations

from dataclasses import dataclass

from hlo_opt.ops import OpSpec, table

COMPUTATIONS = """\
sum { a = f32[] parameter(0) b = f32[] parameter(1) ROOT r = f32[] add(a, b) }
most { a = f32[] parameter(0) b = f32[] parameter(1) ROOT r = f32[] maximum(a, b) }
less { a = f32[] parameter(0) b = f32[] parameter(1) ROOT r = pred[] compare(a, b), direction=LT }
more { a = f32[] parameter(0) b = f32[] parameter(1) ROOT r = pred[] compare(a, b), direction=GT }
turn { a = f32[8] parameter(0) ROOT r = f32[8] negate(a) }
rise { a = f32[8] parameter(0) ROOT r = f32[8] exponential(a) }
again { a = f32[8] parameter(0) ROOT r = pred[] constant(true) }
never { a = f32[8] parameter(0) ROOT r = pred[] constant(false) }
step { x = f32[] parameter(0) c = f32[] parameter(1) s = f32[] add(x, c) ROOT r = (f32[], f32[]) tuple(s, s) }
leap { x = f32[] parameter(0) c = f32[] parameter(1) s = f32[] multiply(x, c) ROOT r = (f32[], f32[]) tuple(s, s) }

"""

Texts = tuple[str | None, str | None]


@dataclass(frozen=True)
class Sample:
    """The text of one instruction and what may stand elsewhere in it."""

    opcode: str
    operands: tuple[str, ...]
    shape: str
    attributes: dict[str, Texts]
    in_xla: bool = True

    def module(self, **changes: str | None) -> str:
        """The instruction as the result of a module. `changes` are other texts of attributes; `opcode`, `shape` and
        `operands` (the text between the parentheses), too."""
        given = dict(changes)
        opcode = given.pop("opcode", None) or self.opcode
        shape = given.pop("shape", None) or self.shape
        taken = given.pop("operands", None)
        names = ", ".join(f"p{k}" for k in range(len(self.operands))) if taken is None else taken
        texts = {name: first for name, (first, _) in self.attributes.items()} | given
        tail = "".join(f", {name}={text}" for name, text in texts.items() if text is not None)
        parameters = "".join(f"  p{k} = {shape} parameter({k})\n" for k, shape in enumerate(self.operands))
        if self.opcode in ("constant", "parameter"):
            names = "0" if taken is None else taken
        return (
            f"HloModule m\n\n{COMPUTATIONS}ENTRY e "
            f"{{\n{parameters}  ROOT r = {f'{shape} ' if shape else ''}{opcode}({names}){tail}\n}}\n"
        )


SAMPLES: dict[str, Sample] = {}


def sample(opcode: str, operands: str, shape: str, *, in_xla: bool = True, **attributes: Texts) -> None:
    """Add a row. Operands stand between semicolons."""
    taken = tuple(s.strip() for s in operands.split(";") if s.strip())
    named = {name.replace("__", "-"): texts for name, texts in attributes.items()}
    SAMPLES[opcode] = Sample(opcode, taken, shape, named, in_xla)


def specs_in_xla() -> list[OpSpec]:
    """The op table without the opcodes that XLA lacks: what random modules hold, and what is compared with XLA."""
    return [spec for spec in table() if spec.opcode not in SAMPLES or SAMPLES[spec.opcode].in_xla]


_ACCURACY: Texts = (None, "{tolerance={atol=0,rtol=0,ulps=2}}")
_FLAG: Texts = (None, "true")
_PRECISION: Texts = (None, "{highest,default}")
V, W = "f32[8]", "f32[8,8]"

for _opcode in ["abs", "negate", "ceil", "floor", "sign", "round-nearest-afz", "round-nearest-even"]:
    sample(_opcode, V, V)
for _opcode in [
    "acos",
    "acosh",
    "asin",
    "asinh",
    "atanh",
    "cbrt",
    "cosh",
    "cosine",
    "erf",
    "exponential",
    "exponential-minus-one",
    "log",
    "log-plus-one",
    "logistic",
    "rsqrt",
    "sine",
    "sinh",
    "sqrt",
    "tan",
    "tanh",
]:
    sample(_opcode, V, V, result_accuracy=_ACCURACY)
for _opcode in ["add", "subtract", "multiply", "divide", "remainder", "power", "maximum", "minimum", "atan2"]:
    sample(_opcode, f"{V}; {V}", V)
for _opcode in ["and", "or", "xor", "shift-left", "shift-right-arithmetic", "shift-right-logical", "mulhi"]:
    sample(_opcode, "s32[8]; s32[8]", "s32[8]")
for _opcode in ["not", "popcnt", "count-leading-zeros"]:
    sample(_opcode, "s32[8]", "s32[8]")
sample("is-finite", V, "pred[8]")
sample("real", "c64[8]", V)
sample("imag", "c64[8]", V)
sample("complex", f"{V}; {V}", "c64[8]")
sample("compare", f"{V}; {V}", "pred[8]", direction=("LT", "GT"), type=(None, "TOTALORDER"))
sample("select", f"pred[8]; {V}; {V}", V)
sample("clamp", f"{V}; {V}; {V}", V)
sample("convert", V, "bf16[8]")
sample("stochastic-convert", f"{V}; u32[8]", "bf16[8]")
sample("reduce-precision", V, V, exponent_bits=("8", "5"), mantissa_bits=("7", "10"))
sample("bitcast-convert", V, "s32[8]")
sample("bitcast", W, "f32[64]")
sample("copy", V, V)
sample("copy-start", V, "(f32[8], f32[8], u32[])", cross_program_prefetch_index=(None, "0"))
sample("copy-done", "(f32[8], f32[8], u32[])", V)
sample("add-dependency", f"{V}; token[]", V)
sample("after-all", "token[]; token[]", "token[]")
sample("opt-barrier", V, V)
sample(
    "domain",
    V,
    V,
    domain=(
        '{kind="sharding", entry={replicated}, exit={replicated}}',
        '{kind="sharding", entry={maximal device=0}, exit={replicated}}',
    ),
)
sample("parameter", "", V)
sample("constant", "", "f32[]")
sample("iota", "", W, iota_dimension=("0", "1"))
sample("partition-id", "", "u32[]")
sample("replica-id", "", "u32[]")
sample("tuple", f"{V}; f32[8]", "(f32[8], f32[8])")
sample("get-tuple-element", "(f32[8], f32[8])", V, index=("0", "1"))
sample("get-dimension-size", W, "s32[]", dimensions=("{0}", "{1}"))
sample("set-dimension-size", f"{W}; s32[]", "f32[<=8,8]", dimensions=("{0}", "{1}"))
sample("broadcast", V, W, dimensions=("{0}", "{1}"))
sample("reshape", W, "f32[64]", inferred_dimension=(None, "0"))
sample("dynamic-reshape", "f32[8]; s32[]", "f32[<=8]")
sample("transpose", W, W, dimensions=("{1,0}", "{0,1}"))
sample("reverse", W, W, dimensions=("{0}", "{1}"))
sample("slice", V, "f32[4]", slice=("{[0:4]}", "{[2:6]}"))
sample("dynamic-slice", f"{W}; s32[]; s32[]", "f32[2,2]", dynamic_slice_sizes=("{2,2}", "{2,3}"))
sample("dynamic-update-slice", f"{W}; f32[2,2]; s32[]; s32[]", W)
sample("concatenate", f"{W}; {W}", "f32[16,8]", dimensions=("{0}", "{1}"))
sample("pad", f"{V}; f32[]", "f32[9]", padding=("0_1", "1_0"))
_GATHER: dict[str, Texts] = {
    "offset_dims": ("{1}", "{0}"),
    "collapsed_slice_dims": ("{0}", "{1}"),
    "start_index_map": ("{0}", "{1}"),
    "operand_batching_dims": (None, "{1}"),
    "start_indices_batching_dims": (None, "{0}"),
    "index_vector_dim": ("1", "0"),
    "slice_sizes": ("{1,8}", "{8,1}"),
    "indices_are_sorted": _FLAG,
}
sample("gather", f"{W}; s32[8,1]", W, **_GATHER)
_SCATTER: dict[str, Texts] = {
    "update_window_dims": ("{1}", "{0}"),
    "inserted_window_dims": ("{0}", "{1}"),
    "scatter_dims_to_operand_dims": ("{0}", "{1}"),
    "input_batching_dims": (None, "{1}"),
    "scatter_indices_batching_dims": (None, "{0}"),
    "index_vector_dim": ("1", "0"),
    "indices_are_sorted": _FLAG,
    "unique_indices": _FLAG,
    "to_apply": ("sum", "most"),
}
sample("scatter", f"{W}; s32[8,1]; {W}", W, **_SCATTER)
sample(
    "select-and-scatter",
    f"{V}; f32[4]; f32[]",
    V,
    window=("{size=2 stride=2}", "{size=2 stride=2 pad=1_1}"),
    select=("more", "less"),
    scatter=("sum", "most"),
)
sample("reduce", f"{W}; f32[]", V, dimensions=("{0}", "{1}"), to_apply=("sum", "most"))
sample("reduce-window", f"{V}; f32[]", "f32[7]", window=("{size=2}", "{size=3 pad=0_1}"), to_apply=("sum", "most"))
sample(
    "scan",
    f"{V}; f32[]",
    "(f32[8], f32[])",
    dimensions=("{0}", "{1}"),
    num_carries=("1", "0"),
    to_apply=("step", "leap"),
    is_associative=_FLAG,
    is_reverse=_FLAG,
)
sample("sort", V, V, dimensions=("{0}", "{1}"), to_apply=("less", "more"), is_stable=_FLAG)
sample("topk", V, "(f32[2], s32[2])", k=("2", "3"), largest=(None, "false"))
sample("map", f"{V}; {V}", V, dimensions=("{0}", None), to_apply=("sum", "most"))
sample("call", V, V, to_apply=("turn", "rise"))
sample("fusion", V, V, kind=("kLoop", None), calls=("turn", "rise"))
sample("while", V, V, condition=("again", "never"), body=("turn", "rise"))
sample("conditional", f"pred[]; {V}; f32[8]", V, true_computation=("turn", "rise"), false_computation=("rise", "turn"))
sample(
    "async-start",
    V,
    "((f32[8]), f32[8], s32[])",
    calls=("turn", "rise"),
    async_execution_thread=(None, '"other"'),
    output_to_operand_aliasing=(None, "{{}: (0, {})}"),
)
sample(
    "async-update",
    "((f32[8]), f32[8], s32[])",
    "((f32[8]), f32[8], s32[])",
    calls=(None, "turn"),
    async_execution_thread=(None, '"other"'),
)
sample("async-done", "((f32[8]), f32[8], s32[])", V, calls=(None, "turn"), async_execution_thread=(None, '"other"'))
_DIMS: dict[str, Texts] = {
    "lhs_contracting_dims": ("{1}", "{0}"),
    "rhs_contracting_dims": ("{1}", "{0}"),
    "lhs_batch_dims": (None, "{0}"),
    "rhs_batch_dims": (None, "{0}"),
    "operand_precision": _PRECISION,
}
sample("dot", f"{W}; {W}", W, **_DIMS, algorithm=(None, "dot_bf16_bf16_f32"))
sample(
    "scaled-dot",
    "f8e4m3fn[8,32]; f8e4m3fn[8,32]; f8e8m0fnu[8,1]; f8e8m0fnu[8,1]",
    W,
    **_DIMS,
    algorithm=(None, "dot_bf16_bf16_f32"),
)
sample(
    "ragged-dot",
    "f32[8,8]; f32[2,8,8]; s32[2]",
    W,
    **_DIMS,
    lhs_ragged_dims=("{0}", "{1}"),
    rhs_group_dims=("{0}", "{1}"),
)
sample(
    "convolution", "f32[1,8,8,2]; f32[3,3,2,4]", "f32[1,6,6,4]", dim_labels=("b01f_01io->b01f", "b10f_01io->b01f"),
    window=("{size=3x3}", "{size=3x3 rhs_reversal=1x1}"),
    feature_group_count=(None, "2"), batch_group_count=(None, "2"), operand_precision=_PRECISION,
    convolution_kind=(None, "fprop"), sparsity_config=(None, "{}"),
)  # fmt: skip
sample("fft", "c64[8]", "c64[8]", fft_type=("FFT", "IFFT"), fft_length=("{8}", "{4}"))
sample("cholesky", W, W, lower=("true", None))
sample(
    "triangular-solve",
    f"{W}; {W}",
    W,
    left_side=("true", None),
    lower=("true", None),
    unit_diagonal=_FLAG,
    transpose_a=("NO_TRANSPOSE", "TRANSPOSE"),
)
_NORM: dict[str, Texts] = {"epsilon": ("0.001", "0.01"), "feature_index": ("0", "1")}
sample("batch-norm-inference", f"{W}; {V}; {V}; {V}; {V}", W, **_NORM)
sample("batch-norm-training", f"{W}; {V}; {V}", "(f32[8,8], f32[8], f32[8])", **_NORM)
sample("batch-norm-grad", f"{W}; {V}; {V}; {V}; {W}", "(f32[8,8], f32[8], f32[8])", **_NORM)
sample("rng", "f32[]; f32[]", V, distribution=("rng_uniform", "rng_normal"))
sample("rng-bit-generator", "u64[2]", "(u64[2], u32[8])", algorithm=("rng_default", "rng_philox"))
sample("rng-get-and-update-state", "", "u64[2]", delta=("1", "2"))
_GROUPS: dict[str, Texts] = {"replica_groups": ("{{0,1}}", "{{0},{1}}"), "channel_id": (None, "1")}
_REDUCE: dict[str, Texts] = {
    **_GROUPS,
    "to_apply": ("sum", "most"),
    "constrain_layout": _FLAG,
    "use_global_device_ids": _FLAG,
    "mode": (None, "cross_replica"),
}
_ALL_GATHER: dict[str, Texts] = {
    **_GROUPS,
    "dimensions": ("{0}", "{1}"),
    "constrain_layout": _FLAG,
    "use_global_device_ids": _FLAG,
}
sample("all-reduce", V, V, **_REDUCE)
sample("all-reduce-start", V, V, **_REDUCE)
sample("all-reduce-done", V, V)
sample("reduce-scatter", V, "f32[4]", **_REDUCE, dimensions=("{0}", "{1}"))
sample("all-gather", V, "f32[16]", **_ALL_GATHER)
sample("all-gather-start", V, "(f32[8], f32[16])", **_ALL_GATHER)
sample("all-gather-done", "(f32[8], f32[16])", "f32[16]")
sample("all-to-all", V, V, **_GROUPS, dimensions=("{0}", "{1}"), constrain_layout=_FLAG)
sample("ragged-all-to-all", f"{V}; {V}; s64[2]; s64[2]; s64[2]; s64[2]", V, **_GROUPS, dimensions=(None, "{0}"))
_PAIRS: dict[str, Texts] = {
    "source_target_pairs": ("{{0,1}}", "{{1,0}}"),
    "channel_id": (None, "1"),
    "slice_sizes": (None, "{{8}}"),
}
sample("collective-permute", V, V, **_PAIRS)
sample("collective-permute-start", V, "(f32[8], f32[8])", **_PAIRS)
sample("collective-permute-done", "(f32[8], f32[8])", V)
sample("collective-broadcast", V, V, **_GROUPS)
_CHANNEL: dict[str, Texts] = {"channel_id": ("1", "2"), "is_host_transfer": _FLAG}
sample("send", f"{V}; token[]", "(f32[8], u32[], token[])", **_CHANNEL)
sample("send-done", "(f32[8], u32[], token[])", "token[]", **_CHANNEL)
sample("recv", "token[]", "(f32[8], u32[], token[])", **_CHANNEL)
sample("recv-done", "(f32[8], u32[], token[])", "(f32[8], token[])", **_CHANNEL)
sample("infeed", "token[]", "(f32[8], token[])", infeed_config=(None, '"one"'))
sample(
    "outfeed", f"{V}; token[]", "token[]", outfeed_config=(None, '"one"'), outfeed_shape=("f32[8]", "f32[8]{0:S(5)}")
)
sample(
    "custom-call", f"{V}; {V}", V, custom_call_target=('"f"', '"g"'), api_version=(None, "API_VERSION_TYPED_FFI"),
    batch_group_count=(None, "2"),
    called_computations=("{turn}", "{rise}"), custom_call_has_side_effect=_FLAG, dim_labels=(None, "b0f_0io->b0f"),
    feature_group_count=(None, "2"),
    literal=(None, "1"), operand_layout_constraints=(None, "{f32[8]{0}, f32[8]{0}}"), operand_precision=_PRECISION,
    output_to_operand_aliasing=(None, "{{}: (0, {})}"), padding_type=(None, "PADDING_SAME"),
    schedule=(None, "SCHEDULE_EARLIEST"), to_apply=(None, "turn"),
    window=(None, "{size=2}"), backend_config=('"a"', '"b"'), frontend_attributes=(None, '{k="v"}'),
    sharding=(None, "{replicated}"),
)  # fmt: skip
