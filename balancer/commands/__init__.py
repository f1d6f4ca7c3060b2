"""``permit-balancer``: one file a command, loaded when it is called.

Decides how a user's mistake and an absent dependency are told: one line, no traceback. Exit codes:
0 good, 1 failed, 2 wrong usage.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return its exit code.

    Args:
        arguments: without the program's name; None for those of the process.
    """
    try:
        from balancer.commands.group import run  # noqa: PLC0415 - a missing extra is one line
    except ModuleNotFoundError as error:
        sys.stderr.write(
            f"permit-balancer: the package {error.name} is missing; "
            "run: pip install 'permit-balancer[balancer]'\n"
        )
        return 1
    return run(arguments)
