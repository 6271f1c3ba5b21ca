"""HLO text: parse, verify and print modules, and find the Python code that instructions come from."""

from hlo_opt.ir import Module
from hlo_opt.text.frames import StackFrame, source_location, stack, stack_frames
from hlo_opt.text.inputs import decode, parse, parse_file_parts, split_input
from hlo_opt.text.printer import STYLES, print_instruction, print_module

Module.printer = print_module


def verify(module: Module, allow_unknown: bool = False, max_errors: int = 1) -> None:
    """Check that a module is well formed.

    Raises VerifyError at the first faulty instruction; its `errors` are the first `max_errors` faults, at most one per
    instruction. With `allow_unknown`, opcodes and attributes outside the op table are accepted unchecked.
    """
    from hlo_opt.text.verifier import Verifier  # loads NumPy

    Verifier(module, allow_unknown, max_errors).run()


__all__ = [
    "STYLES",
    "StackFrame",
    "decode",
    "parse",
    "parse_file_parts",
    "print_instruction",
    "print_module",
    "source_location",
    "split_input",
    "stack",
    "stack_frames",
    "verify",
]
