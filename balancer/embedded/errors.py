"""What can go wrong with the embedded stack; each message says what to do or shows the log."""

from balancer.errors import BalancerError

__all__ = ["DirectoryError", "EmbeddedError", "MissingProgramError"]


class EmbeddedError(BalancerError):
    """A part of the embedded stack could not be started, reached or stopped."""


class DirectoryError(EmbeddedError):
    """The directory given cannot be made or written; the message names it and says why."""


class MissingProgramError(EmbeddedError):
    """The program of a part is not installed."""

    def __init__(self, part: str, program: str) -> None:
        super().__init__(
            f"the embedded {part} needs the program {program!r}, which is not installed: "
            "pip install 'permit-balancer[embedded]'"
        )
        self.part = part
        self.program = program
