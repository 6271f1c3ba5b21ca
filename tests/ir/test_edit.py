import pytest

from hlo_opt.ir import Attribute, Called, Computation, Instruction, Module, array, edit, walk
from hlo_opt.ir.element_type import F32

F = array(F32, 4)


@pytest.fixture
def module() -> Module:
    module = Module("m")
    entry = edit.add_computation(module, Computation("e"), entry=True)
    a = edit.create(entry, "a", "parameter", F, parameter_number=0)
    b = edit.create(entry, "b", "negate", F, [a])
    c = edit.create(entry, "c", "add", F, [b, b])
    edit.create(entry, "d", "multiply", F, [c, a], root=True)
    return module


def by_name(module: Module) -> dict[str, Instruction]:
    return {i.name: i for c in module.computations for i in c.instructions}


def test_users_follow_every_edit(module: Module):
    i = by_name(module)
    assert list(i["b"].users) == [i["c"]]
    edit.replace_operand(i["c"], 0, i["a"])
    assert list(i["b"].users) == [i["c"]]
    edit.replace_operand(i["c"], 1, i["a"])
    assert list(i["b"].users) == []
    assert list(i["a"].users) == [i["b"], i["d"], i["c"]]
    edit.remove(i["b"])
    assert list(i["a"].users) == [i["d"], i["c"]]
    with pytest.raises(ValueError, match="still used"):
        edit.remove(i["c"])


def test_replacing_a_root_moves_the_root(module: Module):
    i = by_name(module)
    edit.replace_all_uses(i["d"], i["c"])
    assert module.entry.root is i["c"]
    edit.remove(i["d"])
    assert "d" not in by_name(module)


def test_sort_puts_operands_first_and_keeps_the_rest(module: Module):
    i = by_name(module)
    late = edit.create(module.entry, "late", "negate", F, [i["a"]])
    edit.replace_operand(i["b"], 0, late)
    edit.sort(module.entry)
    assert [x.name for x in module.entry.instructions] == ["a", "late", "b", "c", "d"]


def test_unique_names_count_up(module: Module):
    assert module.unique_name("x") == "x"
    assert module.unique_name("x") == "x.1"
    assert module.unique_name("x.1") == "x.2"
    assert module.unique_name("a") == "a.1"
    assert module.unique_name("e") == "e.1"


def test_a_clone_shares_nothing_that_changes(module: Module):
    body = edit.new_computation(module, "body")
    edit.create(body, "p", "parameter", F, parameter_number=0, root=True)
    call = edit.create(module.entry, "call", "call", F, [by_name(module)["d"]], {"to_apply": Called(body)}, root=True)
    call.attributes["metadata"] = Attribute("{}")
    edit.sort_computations(module)
    assert [c.name for c in module.computations] == ["body", "e"]
    copy = edit.clone_module(module)
    twin = by_name(copy)["call"]
    assert twin is not call and next(twin.called()) is not body and next(twin.called()).name == "body"
    edit.set_root(copy.entry, by_name(copy)["d"])
    edit.remove(twin)
    assert "call" in by_name(module) and "call" not in by_name(copy)
    assert list(by_name(module)["d"].users) == [call]


def test_orders(module: Module):
    assert [x.name for x in walk.post_order(module.entry)] == ["a", "b", "c", "d"]
    assert [c.name for c in walk.executed_computations(module)] == ["e"]


def test_a_chain_of_100_000_needs_no_stack():
    module = Module("m")
    entry = edit.add_computation(module, Computation("e"), entry=True)
    last = edit.create(entry, "p", "parameter", F, parameter_number=0)
    for _ in range(100_000):
        last = edit.append(entry, Instruction(f"n{len(entry.instructions)}", "negate", F, [last]))
    edit.set_root(entry, last)
    edit.sort(entry)
    assert len(walk.post_order(entry)) == 100_001


def test_a_computation_moves_into_another_module_with_what_it_calls(module: Module):
    called = edit.add_computation(module, Computation("f"))
    p = edit.create(called, "p", "parameter", F, parameter_number=0)
    edit.create(called, "n", "negate", F, [p], root=True)
    i = by_name(module)
    call = edit.create(module.entry, "call", "call", F, [i["a"]], {"to_apply": Called(called)})
    other = Module("o")
    edit.add_computation(other, Computation("e"), entry=True)
    copy = edit.clone_into_module(other, module.entry)
    assert [c.name for c in other.computations] == ["e", "f", "e.1"] and copy.name == "e.1"
    made = by_name(other)
    assert made["call"].called_by("to_apply") is not called and made["call"].called_by("to_apply").module is other
    assert copy.root.opcode == "multiply" and list(copy.parameters) == [made["a"]] and call.parent is module.entry
