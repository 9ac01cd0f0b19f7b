"""Key spaces: all combinations of public keys of columns, numbered and never written down.

The number of cells of a thresholded histogram must be public, and the records must not decide it: keys are whole numbers of a range, texts
of a fixed length over an alphabet (hashes, ISBN, H3, postcodes), or codes of a public list. A key that is none of these has no cell.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from dpdist.errors import InvalidInput

MOST_CELLS = 2**62
"""Numbers of cells fit into 64 bits with a sign."""

Integers = NDArray[np.int64]


class Keys(ABC):
    """The keys that a column may have, numbered from zero on."""

    @property
    @abstractmethod
    def size(self) -> int:
        """How many there are."""

    @abstractmethod
    def numbers_of(self, texts: Sequence[str]) -> Integers:
        """The number of every key, -1 for texts that are none."""

    @abstractmethod
    def key_at(self, number: int) -> str:
        """The key of a number."""


@dataclass(frozen=True)
class IntegerKeys(Keys):
    """The whole numbers of a range, as they are written without signs of plus and leading zeros."""

    first: int
    last: int

    def __post_init__(self) -> None:
        if self.last < self.first:
            raise InvalidInput(f"whole numbers from {self.first} to {self.last} are none: 'to' is 'from' or more")

    @property
    def size(self) -> int:
        return self.last - self.first + 1

    def numbers_of(self, texts: Sequence[str]) -> Integers:
        return np.array([self._number_of(text) for text in texts], dtype=np.int64)

    def key_numbers(self, values: Integers) -> Integers:
        """The number of the key that each whole number of up to 18 digits is, -1 for those that are none."""
        low, high = max(self.first, -(10**18)), min(self.last, 10**18)
        is_key = (values >= low) & (values <= high)
        return np.where(is_key, values - low + (low - self.first if low <= high else 0), -1)

    def _number_of(self, text: str) -> int:
        digits = text.removeprefix("-")
        if not (digits.isascii() and digits.isdigit()) or len(digits) > 20 or str(int(text)) != text:
            return -1
        return int(text) - self.first if self.first <= int(text) <= self.last else -1

    def key_at(self, number: int) -> str:
        return str(self.first + number)


@dataclass(frozen=True)
class TextKeys(Keys):
    """All texts of one length over an alphabet of ASCII characters.

    >>> TextKeys("01", 3).numbers_of(["000", "110", "2", "0001"]).tolist()
    [0, 6, -1, -1]
    """

    alphabet: str
    length: int

    def __post_init__(self) -> None:
        if not self.alphabet.isascii() or not self.alphabet.isprintable() or len(set(self.alphabet)) < len(self.alphabet):
            raise InvalidInput("an alphabet of keys holds different printable characters of ASCII: leave others out")
        if not self.alphabet or self.length < 1:
            raise InvalidInput(f"keys have a length of 1 or more over some characters, found {self.length}")

    @property
    def size(self) -> int:
        return int(len(self.alphabet) ** self.length)

    @cached_property
    def _byte_digits(self) -> Integers:
        """The digit that every byte stands for, its place in the alphabet; -1 where it is not there."""
        places = np.full(256, -1, dtype=np.int64)
        places[np.frombuffer(self.alphabet.encode(), dtype=np.uint8)] = np.arange(len(self.alphabet))
        return places

    def numbers_of(self, texts: Sequence[str]) -> Integers:
        fits = np.array([len(text) == self.length and text.isascii() for text in texts], dtype=bool)
        matching = "".join(text for text, fit in zip(texts, fits.tolist(), strict=True) if fit)
        places = self._byte_digits[np.frombuffer(matching.encode(), dtype=np.uint8)].reshape(-1, self.length)
        number = np.zeros(len(places), dtype=np.int64)
        for column in places.T:
            number = number * len(self.alphabet) + column
        numbers = np.full(len(texts), -1, dtype=np.int64)
        numbers[fits] = np.where((places < 0).any(axis=1), -1, number)
        return numbers

    def key_at(self, number: int) -> str:
        letters = []
        for _ in range(self.length):
            number, place = divmod(number, len(self.alphabet))
            letters.append(self.alphabet[place])
        return "".join(reversed(letters))


@dataclass(frozen=True)
class ListedKeys(Keys):
    """The codes of a public list.

    Attributes:
        codes: different ones as UTF-8, in rising order: an array in memory or of a file.
    """

    codes: NDArray[np.bytes_] = field(repr=False)

    @classmethod
    def of_texts(cls, texts: Iterable[str]) -> ListedKeys:
        """The codes of a list in any order. Raises: InvalidInput for codes that no array of bytes tells apart."""
        encoded = [text.encode() for text in texts]
        if any(not code or code.endswith(b"\0") for code in encoded):
            raise InvalidInput("a list of codes holds an empty code, or one that ends with a zero byte: leave it out")
        codes = np.unique(np.array(encoded, dtype=np.bytes_))
        if codes.size < len(encoded):
            raise InvalidInput("a list of codes names one of them twice: name each once")
        return cls(codes)

    @property
    def size(self) -> int:
        return int(self.codes.size)

    def numbers_of(self, texts: Sequence[str]) -> Integers:
        if not texts:
            return np.zeros(0, dtype=np.int64)
        encoded = [text.encode() for text in texts]
        wanted = np.array(encoded, dtype=self.codes.dtype)  # of the same width, or all codes would be copied
        # what an array of bytes cuts off or leaves out
        fits = np.array([len(code) <= wanted.itemsize and not code.endswith(b"\0") for code in encoded], dtype=bool)
        order = np.argsort(wanted)  # neighbours are near each other in a file
        places = np.empty(wanted.size, dtype=np.int64)
        places[order] = np.minimum(np.searchsorted(self.codes, wanted[order]), self.size - 1)
        return np.where((self.codes[places] == wanted) & fits, places, -1)

    def key_at(self, number: int) -> str:
        return bytes(self.codes[number]).decode()


@dataclass(frozen=True)
class KeySpace:
    """All combinations of the keys of some columns. Raises: InvalidInput for more than 2^62.

    >>> space = KeySpace({"country": ListedKeys.of_texts(["DE", "FR"]), "page": IntegerKeys(1, 10**9)})
    >>> space.size
    2000000000
    >>> space.keys_at(1_000_000_041)
    ('FR', '42')
    """

    columns: Mapping[str, Keys]

    def __post_init__(self) -> None:
        if not self.columns or self.size > MOST_CELLS:
            raise InvalidInput(
                f"a key space has one column or more and up to 2^62 cells, found {self.size:,}: take fewer columns or shorter keys"
            )

    @property
    def size(self) -> int:
        """The number of cells."""
        return math.prod(keys.size for keys in self.columns.values())

    def cells_of(self, numbers: Mapping[str, Integers]) -> Integers:
        """The cell of every record from the numbers of its keys; -1 where one of them is none."""
        records = len(next(iter(numbers.values())))
        cells, has_cell = np.zeros(records, dtype=np.int64), np.ones(records, dtype=bool)
        for name, keys in self.columns.items():
            cells = cells * keys.size + np.maximum(numbers[name], 0)
            has_cell &= numbers[name] >= 0
        return np.where(has_cell, cells, -1)

    def project(self, cells: Integers, names: Sequence[str]) -> Integers:
        """The cell of each cell in the space of some of the columns, in the order of this one."""
        projected, factor = np.zeros_like(cells), 1
        for name, keys in reversed([*self.columns.items()]):
            if name in names:
                projected += cells % keys.size * factor
                factor *= keys.size
            cells = cells // keys.size
        return projected

    def keys_at(self, cell: int) -> tuple[str, ...]:
        """The keys of a cell."""
        parts = []
        for keys in reversed([*self.columns.values()]):
            cell, number = divmod(cell, keys.size)
            parts.append(keys.key_at(number))
        return tuple(reversed(parts))
