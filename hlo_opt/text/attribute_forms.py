"""The form of each attribute's value, and the check that a value has it.

The reader keeps values as text. Before a module is used, `check_form` checks each against its form: terminals or a rule
of the grammar, or a list of words. Decoding (`hlo_opt.text.attributes`) happens on first use of a value.
Source: xla/hlo/parser/hlo_parser.cc, CreateInstruction, ParseHloModule and ParseAttributeHelper; the words are those of
xla/xla_data.proto.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable
from dataclasses import dataclass

from hlo_opt.diag import ParseError, Source, Span, nearest
from hlo_opt.text.attributes import decode_metadata, decode_padding, decode_slices, decode_window, unquote
from hlo_opt.text.grammar import EXPLAINED, MAXIMUM_DEPTH, USUAL_DEPTH, Grammar, grammar, terminal
from hlo_opt.text.literals import lazy_literal
from hlo_opt.text.shapes import read_entry_layout, read_shape, read_shapes


@dataclass(frozen=True)
class AttributeForm:
    """The form of a value. An empty field does not constrain it.

    what        description for messages
    terminals   terminals of the grammar, one of which must match
    rule        a rule of the grammar that must match
    usual       values that match the rule: most modules have no others, and need not compile its expression
    words       the allowed words, compared in lower case when `any_case` is set
    test        a further check, which raises ParseError
    """

    what: str
    terminals: tuple[str, ...] = ()
    rule: str = ""
    usual: frozenset[str] = frozenset()
    words: tuple[str, ...] = ()
    any_case: bool = False
    test: Callable[[str], object] | None = None


def _words(what: str, words: str, any_case: bool = False) -> AttributeForm:
    return AttributeForm(what, words=tuple(words.split()), any_case=any_case)


def _integers_in(text: str) -> list[int]:
    return [int(number) for number in re.findall(r"-?\d+", text)]


def _check_tiles(tiles: str) -> tuple[list[int], list[int]]:
    """Shape and devices of a tiling such as `[2,4]<=[4,2]T(1,0)`; no devices where an iota defines them.

    Raises ParseError where permutation and grid do not fit.
    """
    grid, _, rest = tiles.partition("]")
    shape = _integers_in(grid)
    if "<=" not in rest:
        return shape, _integers_in(rest)
    counted, _, order = rest.partition("]")
    dimensions, permutation = _integers_in(counted), _integers_in(order)
    if len(dimensions) == 1 and permutation:
        raise ParseError("one dimension takes no order T(..)")
    if len(dimensions) > 1 and not permutation:
        raise ParseError(f"expected T(..), the order of the {len(dimensions)} dimensions, after '<=[..]'")
    if permutation and len(dimensions) > 1 and sorted(permutation) != list(range(len(dimensions))):
        raise ParseError(f"T({','.join(map(str, permutation))}) is not a permutation of {len(dimensions)} dimensions")
    if math.prod(shape) != math.prod(dimensions):
        raise ParseError(f"the grid has {math.prod(shape)} places for {math.prod(dimensions)} devices")
    return shape, []


def _check_devices(text: str) -> None:
    if text.startswith("["):
        shape, devices = _check_tiles(text)
        if devices or len(shape) != 2:
            raise ParseError("expected groups and members, such as [2,4]<=[8]")


def _check_pairs(text: str) -> None:
    if any(len(_integers_in(pair)) != 2 for pair in re.findall(r"\{[^{}]*\}", text[1:-1])):
        raise ParseError("expected pairs, such as {{0,1},{1,0}}")


_QUOTED = re.compile(r"\"(?:[^\"\\]|\\[\s\S])*\"")
_NESTED = re.compile(r"[a-z_]+=\s*(?:\{[^{}]*\}|\{(?:[^{}]*\{[^{}]*\})*[^{}]*\})")
_TILES = re.compile(r"devices=\s*(\[.*)")
_WORD = re.compile(r"(?<![\w.=])[a-z_]+(?![\w.=])")


def _check_mesh(text: str) -> None:
    """Raises ParseError unless a mesh has as many devices as places."""
    for match in re.finditer(r"mesh\s*\[([^\]]*)\]\s*,\s*device_ids=\s*\(([^()\[]*)\)", text):
        places = math.prod(map(int, re.findall(r"=\s*(-?\d+)", match[1])))
        if places != len(_integers_in(match[2])):
            raise ParseError(f"the mesh has {places} places for {len(_integers_in(match[2]))} devices")


def _check_sharding(text: str) -> None:
    """Raises ParseError unless devices are named exactly where the sharding needs them (ParseSingleSharding)."""
    _check_mesh(text)
    bare = _NESTED.sub(" ", _QUOTED.sub('""', terminal("COMMENT").sub(" ", text)))
    inner = bare[1:-1].strip()
    for part in re.findall(r"\{([^{}]*)\}", inner) if inner.startswith("{") else [inner] if inner else []:
        words = set(_WORD.findall(part))
        if words & {"mesh", "maximal_mesh"}:
            continue
        tiles = _TILES.search(part)
        number = int("device=" in part) if tiles is None else len(_check_tiles(tiles[1])[1])
        whole = words & {"replicated", "manual", "unknown", "unreduced"}
        if whole and number:
            raise ParseError(f"a {min(whole)} sharding names no devices")
        if whole:
            continue
        if "maximal" in words:
            if number != 1:
                raise ParseError("a maximal sharding names one device, such as {maximal device=0}")
        elif tiles is None:
            raise ParseError("expected devices=[..], or one of replicated, maximal, manual, unknown, unreduced")
        elif "<=" not in tiles[1] and number <= 1:
            raise ParseError("a tiled sharding names more than one device")


def _check_domain(text: str) -> None:
    for part in ("kind=", "entry=", "exit="):
        if part not in text:
            raise ParseError(f"a domain needs {part}")
    kind = terminal("DOMAIN_KIND").search(text)
    if kind is not None and "sharding" not in kind[0]:
        raise ParseError(f'unknown {kind[0]}; XLA knows kind="sharding"')


def _check_labels(text: str) -> None:
    """Each side names every dimension once, and all three have the same spatial dimensions
    (ParseConvolutionDimensionNumbers)."""
    sides = re.split("_|->", text)
    spatial = []
    for side, letters in zip(sides, ("bf", "io", "bf"), strict=True):
        named = side.replace("?", "")
        digits = sorted(c for c in named if c.isdigit())
        if len(set(named)) != len(named):
            raise ParseError(f"expected {letters[0]}, {letters[1]} and each spatial dimension once in {side!r}")
        if digits != [str(n) for n in range(len(digits))]:
            raise ParseError(f"the spatial dimensions of {side!r} do not count from 0")
        spatial.append(len(digits))
    if len(set(spatial)) > 1:
        raise ParseError(
            f"input, kernel and output have {spatial[0]}, {spatial[1]} and {spatial[2]} spatial dimensions"
        )


def _check_int32(text: str) -> None:
    if not -(1 << 31) <= int(text) < 1 << 31:
        raise ParseError(f"{text} is out of range")


def _check_float(text: str) -> None:
    value = float(text.partition("(")[0])
    if "inf" not in text and abs(value) > 3.4028234663852886e38:
        raise ParseError(f"{text} is out of range for f32")


def _check_config(text: str) -> None:
    if text[0] != "{":
        unquote(text)


def _check_literal(text: str) -> None:
    """Decode the values of an array. The arrays of a tuple are checked by the grammar only."""
    match = terminal("ARRAY").match(text)
    if match is not None:
        literal = lazy_literal(read_shape(match[0]), text[match.end() :].strip())
        if not literal.is_elided:
            literal.value  # noqa: B018 - decoding is the check


INTEGER = AttributeForm("an integer", ("INTEGER",))
BOOLEAN = AttributeForm("true or false", ("BOOLEAN",))
INTEGERS = AttributeForm("integers such as {0,1}", ("INTEGERS",))
INTEGER_LISTS = AttributeForm("lists of integers such as {{0,1},{2}}", ("INTEGER_LISTS",))
STRING = AttributeForm("a string in quotes", ("STRING",), test=unquote)
BOOLEANS = AttributeForm("true, false or a list of them", ("BOOLEAN", "BOOLEANS"))
NUMBER = AttributeForm("a number", ("NUMBER",), test=_check_float)


def _same(form: AttributeForm, names: str) -> dict[str, AttributeForm]:
    """The same form for several attributes."""
    return dict.fromkeys(names.split(), form)


FORMS: dict[str, AttributeForm] = {
    **_same(
        BOOLEAN,
        "alias_passthrough_params constrain_layout custom_call_has_side_effect indices_are_sorted "
        "is_associative is_composite is_host_transfer is_reverse is_scheduled is_stable largest left_side "
        "lower unique_indices unit_diagonal use_global_device_ids",
    ),
    **_same(BOOLEANS, "allow_spmd_sharding_propagation_to_output allow_spmd_sharding_propagation_to_parameters"),
    **_same(STRING, "async_execution_thread custom_call_target execution_thread infeed_config outfeed_config"),
    **_same(
        INTEGER,
        "batch_group_count channel_id delta exponent_bits feature_group_count feature_index index "
        "index_vector_dim inferred_dimension iota_dimension k mantissa_bits num_carries num_partitions "
        "replica_count",
    ),
    **_same(
        INTEGERS,
        "collapsed_slice_dims dimensions dynamic_slice_sizes fft_length input_batching_dims "
        "inserted_window_dims lhs_batch_dims lhs_contracting_dims lhs_ragged_dims offset_dims "
        "operand_batching_dims rhs_batch_dims rhs_contracting_dims rhs_group_dims "
        "scatter_dims_to_operand_dims scatter_indices_batching_dims slice_sizes start_index_map "
        "start_indices_batching_dims update_window_dims",
    ),
    "algorithm": _words(
        "an algorithm",
        "unset dot_any_f8_any_f8_f32 dot_any_f8_any_f8_f32_fast_accum dot_f16_f16_f16 dot_f16_f16_f32 "
        "dot_bf16_bf16_bf16 dot_bf16_bf16_f32 "
        "dot_bf16_bf16_f32_x3 dot_bf16_bf16_f32_x6 dot_bf16_bf16_f32_x9 dot_tf32_tf32_f32 "
        "dot_tf32_tf32_f32_x3 dot_f32_f32_f32 dot_f64_f64_f64",
        any_case=True,
    ),
    "api_version": _words(
        "an API version",
        "api_version_original api_version_status_returning api_version_status_returning_unified api_version_typed_ffi",
        any_case=True,
    ),
    "backend_config": AttributeForm("a string or text in braces", ("STRING", "RAW"), test=_check_config),
    "buffer_donor": AttributeForm("donated parameters such as {(0, {}), (1, {0})}", rule="donors"),
    "convolution_kind": _words("a kind of convolution", "fprop wgrad dgrad unset"),
    "cross_program_prefetch_index": AttributeForm("an integer", ("INTEGER",), test=_check_int32),
    "dim_labels": AttributeForm("dimension labels such as bf01_oi01->bf01", ("DIMENSION_LABELS",), test=_check_labels),
    "direction": _words("a direction", "EQ NE GE GT LE LT"),
    "distribution": _words("a distribution", "rng_uniform rng_normal", any_case=True),
    "domain": AttributeForm("a domain", rule="domain", test=_check_domain),
    "entry_computation_layout": AttributeForm(
        "shapes such as {(f32[2]{0})->f32[2]{0}}", rule="entry_layout", test=read_entry_layout
    ),
    "epsilon": NUMBER,
    "fft_type": _words("a type of FFT", "FFT IFFT RFFT IRFFT"),
    "frontend_attributes": AttributeForm('attributes such as {a="b"}', rule="frontend"),
    "input_output_alias": AttributeForm("aliases such as {{0}: (1, {}, may-alias)}", rule="aliases"),
    "kind": _words("a kind of fusion", "kLoop kInput kOutput kCustom"),
    "literal": AttributeForm("a literal with its shape, such as f32[] 1", rule="typed_literal", test=_check_literal),
    "metadata": AttributeForm('metadata such as {op_name="a"}', rule="metadata", test=decode_metadata),
    "mode": _words("a mode", "cross_replica cross_partition cross_replica_and_partition flattened_id"),
    "operand_layout_constraints": AttributeForm("shapes such as {f32[2]{0}}", rule="shapes", test=read_shapes),
    "operand_precision": AttributeForm("precisions such as {default,highest}", rule="precisions"),
    "origin": AttributeForm('an origin such as {{"add.1"}}', rule="origin"),
    "origin_recovery_table": AttributeForm('origins such as {{"a"}:{"b"},"HloModule.."}', rule="recovery"),
    "outfeed_shape": AttributeForm("a shape", rule="shape", test=read_shape),
    "output_to_operand_aliasing": AttributeForm("aliases such as {{0}: (1, {})}", rule="operand_aliases"),
    "padding": AttributeForm("padding such as 0_1x2_0_1", rule="padding", test=decode_padding),
    "padding_type": _words("a type of padding", "PADDING_INVALID PADDING_VALID PADDING_SAME"),
    "parameter_replication": AttributeForm("truth values such as {true,false}", ("BOOLEANS",)),
    "replica_groups": AttributeForm(
        "groups of devices such as {{0,1},{2,3}} or [2,2]<=[4]", rule="device_list", test=_check_devices
    ),
    "result_accuracy": AttributeForm("an accuracy such as {mode=highest}", rule="accuracy"),
    "schedule": _words("a schedule", "schedule_none schedule_latest schedule_earliest", any_case=True),
    "sharding": AttributeForm(
        "a sharding", rule="sharding", usual=frozenset({"{manual}", "{replicated}"}), test=_check_sharding
    ),
    "slice": AttributeForm("ranges such as {[0:2], [1:9:2]}", rule="slices", test=decode_slices),
    "source_target_pairs": AttributeForm("pairs such as {{0,1},{1,0}}", ("INTEGER_LISTS",), test=_check_pairs),
    "statistics": AttributeForm("statistics such as {visualizing_index=0,stat-0=1}", rule="statistics"),
    "transpose_a": _words("a transposition", "NO_TRANSPOSE TRANSPOSE ADJOINT"),
    "type": _words("a type of comparison", "FLOAT TOTALORDER SIGNED UNSIGNED"),
    "window": AttributeForm("a window such as {size=3x3 pad=0_1x0_1}", rule="window", test=decode_window),
}
"""The form of each attribute, by name."""

OPCODE_FORMS: dict[tuple[str, str], AttributeForm] = {
    ("rng-bit-generator", "algorithm"): _words("an algorithm", "rng_default rng_three_fry rng_philox", any_case=True),
    ("collective-permute", "slice_sizes"): INTEGER_LISTS,
    ("collective-permute-start", "slice_sizes"): INTEGER_LISTS,
}
"""Attributes whose form depends on the opcode."""


@functools.cache
def _quick(rule: str) -> re.Pattern[str] | None:
    """The regular expression of a rule, where it has one."""
    return grammar().regular(rule) if rule in _REGULAR else None


_TESTED = frozenset({"entry_layout", "shape", "shapes"})
"""Rules that a form's `test` checks; the LALR parser runs only to locate the fault."""
_REGULAR = frozenset(
    [
        *("accuracy", "aliases", "device_list", "donors", "frontend", "metadata", "operand_aliases", "padding"),
        *("precisions", "recovery", "sharding", "slices", "statistics", "window"),
    ]
)


def check_form(opcode: str, name: str, text: str, source: Source | None = None, offset: int = 0) -> None:
    """Check the value of an attribute against its form. `opcode` is "" in the header of a module or computation.

    Raises ParseError, with a position when `source` and the value's `offset` in it are given. An attribute without a
    form may have any value.
    """
    form = OPCODE_FORMS.get((opcode, name)) or FORMS.get(name)
    try:
        if form is not None:
            _check(form, text, source, offset)
    except ParseError as error:
        if error.span is None and source is not None:
            error.span = Span(source, offset, offset + len(text))
        raise


def _grammar_for(text: str) -> Grammar:
    """The grammar for the nesting depth of brackets in a text."""
    depth = deepest = 0
    for bracket in re.findall(r"[()\[\]{}]", text):
        depth += 1 if bracket in "([{" else -1
        deepest = max(deepest, depth)
    return grammar(USUAL_DEPTH if deepest <= USUAL_DEPTH else MAXIMUM_DEPTH)


def _is_one(names: tuple[str, ...], text: str) -> bool:
    return any(terminal(n).fullmatch(text) for n in names) or any(
        _grammar_for(text).terminal(n).fullmatch(text) for n in names if n == "RAW"
    )


def _check(form: AttributeForm, text: str, source: Source | None, offset: int) -> None:
    if form.terminals and not _is_one(form.terminals, text):
        raise ParseError(f"expected {form.what}, found {text[:40]!r}")
    if form.words and (text.lower() if form.any_case else text) not in form.words:
        close = nearest(text.lower() if form.any_case else text, form.words)
        hint = f"did you mean {close}?" if close else f"it is one of {', '.join(form.words)}"
        raise ParseError(f"expected {form.what}, found {text[:40]!r}", hint=hint)
    if form.rule and form.rule not in _TESTED and text not in form.usual:
        quick = _quick(form.rule)
        if quick is None or not (quick.fullmatch(text) or quick.fullmatch(terminal("COMMENT").sub(" ", text))):
            if quick is not None and len(text) > EXPLAINED:
                raise ParseError(f"expected {form.what}, found {text[:40]!r}")
            _grammar_for(text).parse(form.rule, text, source, offset)
    try:
        if form.test is not None:
            form.test(text)
    except ParseError:
        if form.rule in _TESTED and len(text) <= EXPLAINED:  # the parser locates the fault in the text
            _grammar_for(text).parse(form.rule, text, source, offset)
        raise
