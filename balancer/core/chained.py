"""The sequences of several destinations, as one sequence.

Decides nothing, and copies nothing: each value is made by the part that it lies in.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import TypeVar, overload

_T = TypeVar("_T")


class Chained(Sequence[_T]):
    """The parts one after another, in the order of the mapping.

    Attributes:
        parts: by destination.
    """

    def __init__(self, parts: Mapping[str, Sequence[_T]]) -> None:
        self.parts = parts

    def __len__(self) -> int:
        return sum(map(len, self.parts.values()))

    def __iter__(self) -> Iterator[_T]:
        return chain.from_iterable(self.parts.values())

    @overload
    def __getitem__(self, index: int) -> _T: ...

    @overload
    def __getitem__(self, index: slice) -> list[_T]: ...

    def __getitem__(self, index: int | slice) -> _T | list[_T]:
        if isinstance(index, slice):
            return [self[number] for number in range(*index.indices(len(self)))]
        left = index + len(self) if index < 0 else index
        for part in self.parts.values():
            if 0 <= left < len(part):
                return part[left]
            left -= len(part)
        raise IndexError(index)
