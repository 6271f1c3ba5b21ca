"""Custom calls: the registry, ThreeFry, identities, TopK, and what nobody knows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hlo_opt.diag import EvaluationError
from hlo_opt.evaluate.interpreter import Interpreter
from hlo_opt.ir import ELEMENT_TYPES, Attribute, Called, Instruction, Module, Quoted, Shape, array, edit
from hlo_opt.ops import ShapeError, find
from hlo_opt.ops.custom_calls.targets import (
    CustomCallSpec,
    custom_calls,
    find_custom_call,
    register_custom_call,
    unregister_custom_call,
)

SPEC = find("custom-call")


def of(name: str, *dimensions: int) -> Shape:
    return array(ELEMENT_TYPES[name], *dimensions)


def call(target: str, result: Shape, *operands: Shape) -> Instruction:
    parameters = [Instruction(f"p{k}", "parameter", s, parameter_number=k) for k, s in enumerate(operands)]
    return Instruction("c", "custom-call", result, parameters, {"custom_call_target": Attribute.of(Quoted(target))})


def evaluated(instruction: Instruction, *values: Any) -> Any:
    assert SPEC is not None and SPEC.evaluate is not None
    return SPEC.evaluate(Interpreter(), instruction, list(values))


def threefry(*dimensions: int, target: str = "cu_threefry2x32", keys: tuple[int, ...] | None = None) -> Instruction:
    words, key = of("u32", *dimensions), of("u32", *(dimensions if keys is None else keys))
    return call(target, Shape.tuple_of(words, words), key, key, words, words)


def test_threefry_gives_the_published_words() -> None:
    """The known answers of Random123 (kat_vectors, threefry2x32 with 20 rounds)."""
    vectors = [
        (0, 0, 0, 0, 0x6B200159, 0x99BA4EFE),
        (2**32 - 1, 2**32 - 1, 2**32 - 1, 2**32 - 1, 0x1CB996FC, 0xBB002BE7),
        (0x13198A2E, 0x03707344, 0x243F6A88, 0x85A308D3, 0xC4923A9C, 0x483DF7A0),
    ]
    key0, key1, count0, count1, word0, word1 = np.array(vectors, np.uint32).T
    found = evaluated(threefry(3), key0, key1, count0, count1)
    np.testing.assert_array_equal(found, [word0, word1])


@pytest.mark.parametrize("target", ["threefry2x32", "cu_threefry2x32", "cu_threefry2x32_ffi"])
@pytest.mark.parametrize(("dimensions", "keys"), [((6,), None), ((2, 3), None), ((6,), ()), ((), None)])
def test_the_expansion_means_the_same(target: str, dimensions: tuple[int, ...], keys: tuple[int, ...] | None) -> None:
    instruction = threefry(*dimensions, target=target, keys=keys)
    assert SPEC is not None and SPEC.infer is not None and SPEC.expand is not None
    assert SPEC.has_expansion(instruction)
    assert SPEC.infer(instruction).same_values(instruction.shape)
    module = Module("m")
    expansion = SPEC.expand(module, instruction)
    assert not module.computations, "the module stays as it is"
    assert expansion.root.shape.same_values(instruction.shape)
    names = [i.name for i in expansion.instructions]
    assert len(set(names)) == len(names)
    assert {i.opcode for i in expansion.instructions} <= {
        "parameter", "constant", "broadcast", "add", "xor", "or", "shift-left", "shift-right-logical", "tuple",
    }  # fmt: skip
    generator = np.random.default_rng(1)
    inputs = [generator.integers(0, 2**32, o.shape.dimensions, np.uint32) for o in instruction.operands]
    expected = evaluated(instruction, *inputs)
    for ours, word in zip(Interpreter().call(expansion, inputs), expected, strict=True):
        np.testing.assert_array_equal(ours, word)


def test_threefry_operands_that_do_not_fit() -> None:
    assert SPEC is not None and SPEC.infer is not None
    words = of("u32", 4)
    pair = Shape.tuple_of(words, words)
    for operands, message in (
        ((words, words, words), "not 3 operands"),
        ((words, words, words, of("u32", 5)), "differ in dimensions"),
        ((of("u32", 2), words, words, words), "differ in dimensions"),
        ((words, words, words, of("s32", 4)), "must be u32"),
    ):
        instruction = call("cu_threefry2x32", pair, *operands)
        assert not SPEC.has_expansion(instruction)
        with pytest.raises(ShapeError, match=message):
            SPEC.infer(instruction)


def test_threefry_agrees_with_jax() -> None:
    pytest.importorskip("jax")
    from jax.extend.random import threefry2x32_p

    generator = np.random.default_rng(2)
    inputs = [generator.integers(0, 2**32, 50, np.uint32) for _ in range(4)]
    for ours, theirs in zip(evaluated(threefry(50), *inputs), threefry2x32_p.bind(*inputs), strict=True):
        np.testing.assert_array_equal(ours, np.asarray(theirs))


def test_annotations_are_identities_where_shapes_agree() -> None:
    value = np.arange(4, dtype=np.float32)
    assert SPEC is not None and SPEC.expand is not None
    for target in ("Sharding", "SPMDFullToShardShape", "SPMDShardToFullShape", "MoveToHost"):
        same = call(target, of("f32", 4), of("f32", 4))
        assert evaluated(same, value) is value
        assert SPEC.has_expansion(same)
        np.testing.assert_array_equal(Interpreter().call(SPEC.expand(Module("m"), same), [value]), value)
        other = call(target, of("f32", 2), of("f32", 4))
        assert not SPEC.has_expansion(other)
        with pytest.raises(ValueError, match="several devices"):
            evaluated(other, value)
    spec = find_custom_call("Sharding")
    assert spec is not None and spec.aliasing is not None
    assert spec.aliasing(same) == {(): 0}


def test_top_k_keeps_the_order_of_equal_elements() -> None:
    values = np.array([[3, 1, 3, np.nan, -np.inf], [0, -0.0, 5, 5, 2]], np.float32)
    pair = Shape.tuple_of(of("f32", 2, 3), of("s32", 2, 3))
    instruction = call("TopK", pair, of("f32", 2, 5))
    module = Module("m")
    comparator = edit.new_computation(module, "greater")
    operands = [edit.create(comparator, f"p{k}", "parameter", of("f32"), parameter_number=k) for k in range(2)]
    direction = {"direction": Attribute.of("GT")}
    edit.create(comparator, "r", "compare", of("pred"), operands, direction, root=True)
    instruction.attributes["called_computations"] = Called(comparator, is_list=True)
    found, positions = evaluated(instruction, values)
    assert positions.tolist() == [[3, 0, 2], [2, 3, 4]] and positions.dtype == np.int32
    np.testing.assert_array_equal(found, np.take_along_axis(values, positions, 1))
    edit.set_attribute(comparator.root, "direction", Attribute.of("LT"))
    assert evaluated(instruction, values)[1].tolist() == [[4, 1, 0], [1, 0, 4]]


def test_unknown_targets_have_no_value_and_no_kernel() -> None:
    instruction = call("evil\x1b[31m\n\\", of("f32"))
    assert SPEC is not None and not SPEC.has_expansion(instruction)
    with pytest.raises(EvaluationError) as caught:
        evaluated(instruction)
    assert caught.value.code == "HLO404"
    assert "\x1b" not in str(caught.value) and "evil" in str(caught.value)
    with pytest.raises(EvaluationError, match="Shardin'") as caught:
        evaluated(call("Shardin", of("f32"), of("f32")), np.float32(1))
    assert caught.value.hint == "did you mean Sharding?"
    assert evaluated(call("only_effects", Shape.tuple_of(), of("f32")), np.float32(1)) == ()


def test_a_plugin_registers_a_target_once() -> None:
    spec = CustomCallSpec("twice", evaluate=lambda evaluator, instruction, values: values[0] * 2)
    register_custom_call(spec)
    try:
        assert spec in custom_calls()
        assert evaluated(call("twice", of("f32"), of("f32")), np.float32(3)) == 6
        with pytest.raises(ValueError, match="'twice' is declared twice"):
            register_custom_call(spec)
    finally:
        unregister_custom_call("twice")
    assert find_custom_call("twice") is None


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Lets a test install entry points whose objects it gives."""
    from importlib import metadata

    from hlo_opt.diag import plugins

    objects: dict[str, Any] = {}

    def install(**given: Any) -> None:
        objects.update(given)
        points = [metadata.EntryPoint(name, f"package:{name}", "hlo_opt.custom_calls") for name in objects]
        monkeypatch.setattr(metadata, "entry_points", lambda group: points if group == "hlo_opt.custom_calls" else [])
        monkeypatch.setattr(plugins.Plugin, "load", lambda plugin: objects[plugin.name])
        plugins.forget_plugins()

    yield install
    monkeypatch.undo()
    plugins.forget_plugins()


def test_packages_add_targets_through_entry_points(installed: Any) -> None:
    twice = CustomCallSpec("twice", evaluate=lambda evaluator, instruction, values: values[0] * 2)
    thrice = CustomCallSpec("thrice", evaluate=lambda evaluator, instruction, values: values[0] * 3)
    installed(multiples=[twice, thrice])
    assert find_custom_call("twice") is twice and {twice, thrice} <= set(custom_calls())
    assert evaluated(call("thrice", of("f32"), of("f32")), np.float32(3)) == 9


@pytest.mark.parametrize(
    ("objects", "message", "code"),
    [
        ({"mine": CustomCallSpec("Sharding")}, "'Sharding', which hlo-opt itself declares already", "HLO311"),
        ({"a": CustomCallSpec("x"), "b": [CustomCallSpec("x")]}, "'b' .* declares custom call 'x', which an unnamed",
            "HLO311"),
        ({"mine": 3}, "'mine' .* gives int, which is not a CustomCallSpec", "HLO310"),
    ],
)  # fmt: skip
def test_plugins_that_cannot_be_used_are_named(installed: Any, objects: Any, message: str, code: str) -> None:
    from hlo_opt.diag import UsageError

    installed(**objects)
    with pytest.raises(UsageError, match=message) as caught:
        evaluated(call("x", of("f32"), of("f32")), np.float32(3))
    assert caught.value.code == code


def test_the_number_of_operands_is_checked_before_the_shape() -> None:
    assert SPEC is not None and SPEC.infer is not None
    vector = of("f32", 2)
    register_custom_call(CustomCallSpec("acme.pair", lambda i: i.operands[1].shape, operands=2))
    try:
        assert SPEC.infer(call("acme.pair", vector, vector, vector)) == vector
        with pytest.raises(ShapeError, match=r"acme\.pair takes 2 operands, but has 1"):
            SPEC.infer(call("acme.pair", vector, vector))
    finally:
        unregister_custom_call("acme.pair")
