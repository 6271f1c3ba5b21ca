import numpy as np

import hlo_opt
from hlo_opt.ir import Module


def concatenated(count: int, passes: str = "variadic-op-splitter") -> tuple[str, Module]:
    lines = [f"  p{n} = s32[2,1]{{1,0}} parameter({n})" for n in range(count)]
    operands = ", ".join(f"p{n}" for n in range(count))
    text = (
        f"HloModule m\n\nENTRY e "
        f"{{\n{chr(10).join(lines)}\n  ROOT c = s32[2,{count}]{{1,0}} concatenate({operands}), dimensions={{1}}\n}}\n"
    )
    return text, hlo_opt.fuse(hlo_opt.parse(text), passes=passes, simplify="never")[0]


def sizes(module: Module) -> list[int]:
    return [len(i.operands) for i in module.entry.instructions if i.opcode == "concatenate"]


def test_128_operands_are_left():
    assert sizes(concatenated(128)[1]) == [128]


def test_one_more_is_split():
    assert sizes(concatenated(129)[1]) == [128, 2]
    assert sizes(concatenated(257)[1]) == [128, 128, 3]


def test_groups_are_joined_again_until_they_fit():
    module = concatenated(17, "variadic-op-splitter{most-operands=2}")[1]
    assert max(sizes(module)) == 2


def test_the_value_stays_the_same():
    text, module = concatenated(300)
    inputs = [np.array([[n], [-n]], np.int32) for n in range(300)]
    (want,), (found,) = hlo_opt.evaluate(hlo_opt.parse(text), inputs), hlo_opt.evaluate(module, inputs)
    np.testing.assert_array_equal(found, want)
    hlo_opt.verify(hlo_opt.parse(str(module)))
