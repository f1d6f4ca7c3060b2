"""``permit-balancer``: one file a command, loaded when it is called.

Decides how a user's mistake and an absent dependency are told: one line, no traceback. Exit codes:
0 good, 1 failed, 2 wrong usage.
"""

from __future__ import annotations

import sys


def main() -> int:
    """Run the command line."""
    try:
        import click  # noqa: PLC0415 - so that a missing extra is told in one line
    except ModuleNotFoundError:
        sys.stderr.write("permit-balancer needs: pip install 'permit-balancer[balancer]'\n")
        return 1
    from balancer.commands.migrate import migrate  # noqa: PLC0415
    from worker_sdk.errors import PermitError  # noqa: PLC0415

    group = click.Group("permit-balancer", help="Share a fixed capacity among a fleet of workers.")
    group.add_command(migrate)
    try:
        group.main(standalone_mode=False)
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except click.Abort:
        return 1
    except PermitError as error:
        sys.stderr.write(f"permit-balancer: {error}\n")
        return 1
    return 0
