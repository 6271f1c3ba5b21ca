"""The command `hlo-opt`: a few verbs to a file, which is loaded only when one of them is used.

Results go to stdout, everything else to stderr. Exit status: 0 fine, 1 a check failed, 2 bad input or usage (or an
internal error), 130 interrupted, 141 the reader of a pipe went away.
"""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line of this process and leave with its exit status."""
    try:
        from hlo_opt.cli.group import run

        status = run(sys.argv[1:])
    except KeyboardInterrupt:  # before the command line was read, or a second one
        status = 130
    sys.exit(status)
