"""Finds and ends every process that lives in a directory; run as a program, it guards one stack.

A process belongs to a part of the stack when its working directory lies in that part's directory.
That needs no register of process ids, so a child that a server starts is found too, and so is one
that was started in the very moment in which its parent was killed.

As a program it holds the reading end of a pipe of which only the stack's owner has the writing
end. The end of the pipe means that the owner has stopped or died, in whatever way: the processes
that are left are ended and the directory is removed. It is run by path and isolated
(``python -I -S guardian.py``), hence the standard library only, and no import of the package.

It does not know what the processes are, nor whether they should still run: the pipe alone says so.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
import time
from pathlib import Path

POLL_SECONDS = 0.02
ORDERLY_END_SECONDS = 3.0
FORCED_END_SECONDS = 10.0
STOP_SECONDS = 5.0
DEBRIS = "debris"


def processes_inside(directory: str) -> list[int]:
    """Lists the processes whose working directory is ``directory`` or lies below it.

    Args:
        directory: An absolute path without symbolic links.

    Returns:
        Process ids, ascending, without the caller's own. Left out are processes that may not be
        looked at (another user's), those that already ended, and those with a terminal: servers
        are started without one, so that is the shell of somebody who looks at the files.
    """
    below = directory.rstrip("/") + "/"
    found = []
    for entry in os.listdir("/proc"):  # noqa: PTH208 - names are all that is needed
        if not entry.isdigit() or int(entry) == os.getpid():
            continue
        try:
            cwd = os.readlink(f"/proc/{entry}/cwd")  # noqa: PTH115 - the kernel's text, not a path
            inside = (cwd.removesuffix(" (deleted)") + "/").startswith(below)
            if inside and not _has_terminal(entry):
                found.append(int(entry))
        except OSError:
            continue
    return sorted(found)


def _has_terminal(pid: str) -> bool:
    """Whether a process belongs to a terminal: then it is somebody looking round, not a server."""
    fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    return fields[4] != "0"


def signal_inside(directory: str, number: int) -> int:
    """Sends a signal to every process that lives in ``directory``; returns how many got it."""
    sent = 0
    for pid in processes_inside(directory):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)
            sent += 1
    return sent


def wait_until_stopped(directory: str, timeout_seconds: float) -> bool:
    """Waits until no process in ``directory`` runs, after SIGSTOP; says whether that came true.

    A signal counts as sent before any thread has stopped, and on a busy machine a server may still
    answer what it is asked in that moment.
    """
    deadline = time.monotonic() + timeout_seconds
    while not all(_is_stopped(pid) for pid in processes_inside(directory)):
        if time.monotonic() >= deadline:
            return False
        time.sleep(POLL_SECONDS / 10)
    return True


def _is_stopped(pid: int) -> bool:
    """Whether all threads of a process have stopped, or it has ended."""
    try:
        threads = [path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/stat")]
    except OSError:
        return True
    return all(thread.rpartition(")")[2].split()[0] in "Tt" for thread in threads)


def wait_until_empty(directory: str, timeout_seconds: float) -> bool:
    """Waits until no process lives in ``directory``; says whether that came true in time."""
    deadline = time.monotonic() + timeout_seconds
    while processes_inside(directory):
        if time.monotonic() >= deadline:
            return False
        time.sleep(POLL_SECONDS)
    return True


def kill_inside(directory: str, timeout_seconds: float = FORCED_END_SECONDS) -> bool:
    """Kills every process that lives in ``directory``, also such as appear meanwhile.

    Returns:
        Whether none is left. A killed child of a live parent that was not waited for has no
        working directory any more and does not count.
    """
    deadline = time.monotonic() + timeout_seconds
    while True:
        signal_inside(directory, signal.SIGKILL)
        if wait_until_empty(directory, 0.2):
            return True
        if time.monotonic() >= deadline:
            return False


def end_inside(directory: str) -> bool:
    """Ends what lives in ``directory``, in order if possible; says whether nothing is left.

    SIGINT comes first: every part takes it as a stop in order (PostgreSQL then removes its shared
    memory). What does not follow in time is killed.
    """
    signal_inside(directory, signal.SIGINT)
    signal_inside(directory, signal.SIGCONT)  # a paused process takes no signal but this one
    return wait_until_empty(directory, ORDERLY_END_SECONDS) or kill_inside(directory)


def remove_debris(home: Path) -> None:
    """Removes the sockets that a part's server leaves in folders not its own.

    Args:
        home: The part's folder; its file ``debris``, if there is one, names them, a path a line.
    """
    with contextlib.suppress(OSError):
        for line in (home / DEBRIS).read_text().splitlines():
            if Path(line).is_socket():
                Path(line).unlink(missing_ok=True)


def main(arguments: list[str]) -> int:
    """Guards one directory until standard input ends.

    Args:
        arguments: The directory, then ``remove`` or ``keep``: what becomes of it in the end.
    """
    directory, fate = arguments
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # Ctrl-C and a closing terminal are the owner's
    os.write(1, b"ready\n")
    while os.read(0, 64):
        pass
    ended = end_inside(directory)
    for home in Path(directory).iterdir():
        remove_debris(home)
    if fate == "remove":
        shutil.rmtree(directory, ignore_errors=True)
        return 0 if ended and not Path(directory).exists() else 1
    return 0 if ended else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
