"""The converter between forms in children of this process, which has jaxlib loaded: one started anew takes a second."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

from jaxlib import _hlo, _jax  # noqa: F401  # what children find loaded

from hlo_opt.jax import converter

WAITS = 30
"""Seconds of the clock that a conversion may take beyond its processor time: one that waits for ever uses none."""


@contextmanager
def forked_converter() -> Iterator[None]:
    """While this is entered, what `hlo_opt.jax.conversion` has converted is converted by forks, with the same
    limits."""
    with mock.patch("hlo_opt.jax.conversion.subprocess.run", _run):
        yield


def _run(command: list[str], *, input: bytes, capture_output: bool, check: bool) -> subprocess.CompletedProcess[bytes]:
    """What `subprocess.run` gives for the converter, in a child of this process."""
    with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as errors:
        given.write(input)
        given.seek(0)
        child = os.fork()
        if child == 0:
            status = 1
            try:
                for number, stream in enumerate((given, out, errors)):
                    os.dup2(stream.fileno(), number)
                sys.argv = command[2:]
                signal.signal(signal.SIGALRM, signal.SIG_DFL)
                signal.alarm(int(sys.argv[-1]) + WAITS)  # a fork has none of its parent's
                with open(0) as sys.stdin, open(1, "w") as sys.stdout:
                    status = converter.main()
            finally:
                os._exit(status)
        _, ended = os.waitpid(child, 0)
        out.seek(0)
        errors.seek(0)
        status = os.waitstatus_to_exitcode(ended)
        return subprocess.CompletedProcess(command, status, out.read(), errors.read())
