"""Results of tasks as a JSON document and arrays: whoever reads them makes values of dpdist's own classes and runs nothing else.

A pickle may call any function that can be imported, and the cluster is not trusted: whoever holds its certificate, or writes to the
store, can leave a result there. An encoded one names classes of dpdist that only hold values, each with its fields.
"""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import fractions
import functools
import importlib
import json
from collections import Counter
from collections.abc import Callable
from typing import Any, Literal

import numpy as np

from dpdist.errors import DpdistError, EngineError

MATHEMATICS = ("operators", "workloads", "strategies", "mechanisms", "grids", "arrays", "domain")
"""Packages of dpdist all of whose classes may be sent: none of them reads, writes or starts anything, as an import contract says."""
FUNCTIONS = {("dpdist.storage.array_store", "_sent")}
"""Functions that a result may ask for: this one makes a store of its place and sizes."""
HEAD_BYTES = 8
ALIGNED = 64
INT_LIMIT = 2**63
CONTAINERS: dict[type, str] = {tuple: "tuple", list: "list", set: "set", frozenset: "frozenset"}
MAPPINGS: dict[type, str] = {dict: "dict", Counter: "counter"}
TEXTS: dict[str, tuple[type, Callable[[Any], str], Callable[[str], Any]]] = {
    "int": (int, hex, lambda text: int(text, 16)),
    "complex": (complex, str, complex),
    "fraction": (
        fractions.Fraction,
        lambda value: f"{value.numerator:x}/{value.denominator:x}",
        lambda text: fractions.Fraction(*(int(part, 16) for part in text.split("/"))),
    ),
    "decimal": (decimal.Decimal, str, decimal.Decimal),
    "datetime": (datetime.datetime, datetime.datetime.isoformat, datetime.datetime.fromisoformat),
    "date": (datetime.date, datetime.date.isoformat, datetime.date.fromisoformat),
    "time": (datetime.time, datetime.time.isoformat, datetime.time.fromisoformat),
}
"""Values that are written as text: their type, and both ways."""
TEXT_OF = {kind: (tag, write) for tag, (kind, write, _) in TEXTS.items()}


def encode(value: Any) -> bytes:
    """A value as bytes: the length of a JSON document, the document, and the arrays that it refers to.

    Raises: EngineError naming the type that cannot be sent.
    """
    return _Encoder().encode(value)


def decode(data: np.ndarray[Any, np.dtype[np.uint8]]) -> Any:
    """The value that was encoded. Raises: EngineError for what no result of dpdist holds."""
    try:
        return _Decoder(data).decode()
    except (ValueError, TypeError, LookupError, AttributeError, OverflowError, RecursionError) as error:
        raise EngineError(
            f"the cluster sent a result that cannot be read ({type(error).__name__}): look at its workers, and at who holds its certificate"
        ) from None


@functools.cache
def is_sent(module: str, name: str) -> bool:
    """Whether a result may hold values of a class: those of mathematics, frozen dataclasses, enumerations, named tuples, errors."""
    if (module, name) in FUNCTIONS:
        return True
    if "." in name or not module.startswith("dpdist.") or module == "dpdist.privacy.keys":
        return False
    found = getattr(importlib.import_module(module), name, None)
    if not isinstance(found, type) or found.__module__ != module:
        return False
    if module.split(".")[1] in MATHEMATICS or issubclass(found, enum.Enum | DpdistError):
        return True
    parameters: object = getattr(found, "__dataclass_params__", None)
    frozen = dataclasses.is_dataclass(found) and bool(getattr(parameters, "frozen", False))
    return frozen or (issubclass(found, tuple) and hasattr(found, "_fields"))


def _check_sent(module: str, name: str) -> None:
    if not is_sent(module, name):
        raise EngineError(
            f"the cluster sent something that asks for {module}.{name}, which no result of dpdist does: look at its workers, and at who "
            "holds its certificate, before you run the same command again"
        )


def _is_json_value(value: object) -> bool:
    kind = type(value)
    return kind in (str, float, bool, type(None)) or (kind is int and -INT_LIMIT < value < INT_LIMIT)  # type: ignore[operator]


def _own_reduction(kind: type) -> bool:
    """Whether a class says itself what it is made of again."""
    plain: tuple[object, ...] = (object.__reduce__, BaseException.__reduce__)
    return kind.__reduce__ not in plain


class _Encoder:
    def __init__(self) -> None:
        self.buffers: list[bytes] = []
        self.size = 0
        self.numbers: dict[int, int] = {}
        self.known: list[Any] = []  # held, so that no number is given to another object

    def encode(self, value: Any) -> bytes:
        document = json.dumps(self.written(value)).encode()
        head = len(document).to_bytes(HEAD_BYTES, "little") + document
        return b"".join([head, bytes(-len(head) % ALIGNED), *self.buffers])

    def written(self, value: Any) -> Any:
        """A value in JSON."""
        if _is_json_value(value):
            return value
        if id(value) in self.numbers:
            return ["same", self.numbers[id(value)]]
        write = next((write for types, write in WRITERS if isinstance(value, types)), None)
        if write is not None:
            return write(self, value)
        return self._container(value) or self._object(value)

    def _container(self, value: Any) -> list[Any] | None:
        """A value of Python's own types, None for an object."""
        kind = type(value)
        if kind in TEXT_OF:
            tag, text = TEXT_OF[kind]
            return [tag, text(value)]
        if kind in CONTAINERS:
            return [CONTAINERS[kind], self._encoded_items(value)]
        return (
            [MAPPINGS[kind], self._encoded_items(value), self._encoded_items(value.values())] if kind in MAPPINGS else None
        )

    def _object(self, value: Any) -> list[Any]:
        kind = type(value)
        self.numbers[id(value)] = len(self.known)
        self.known.append(value)
        if isinstance(value, np.ndarray):
            return self._array(value)
        if kind.__module__ == "scipy.sparse._csr":
            return [kind.__name__, list(value.shape), *map(self.written, (value.data, value.indices, value.indptr))]
        if isinstance(value, DpdistError):
            return ["error", *self._named(kind), self._encoded_items(value.args), self.written(vars(value))]
        if isinstance(value, tuple):
            return ["values", *self._named(kind), self._encoded_items(value)]
        if _own_reduction(kind):
            made_by, arguments = value.__reduce__()[:2]
            return ["made", *self._named(made_by), self._encoded_items(arguments)]
        if any(getattr(each, "__slots__", ()) for each in kind.__mro__) or not hasattr(value, "__dict__"):
            self._refuse(kind)
        return ["object", *self._named(kind), self.written(vars(value))]

    def _bytes(self, value: bytes | bytearray) -> list[Any]:
        return [type(value).__name__, *self._append_bytes(bytes(value))]

    def _ends(self, value: slice | range) -> list[Any]:
        return [type(value).__name__, self._encoded_items((value.start, value.stop, value.step))]

    def _timedelta(self, value: datetime.timedelta) -> list[Any]:
        return ["timedelta", value.days, value.seconds, value.microseconds]

    def _scalar(self, value: np.generic) -> list[Any]:
        return ["scalar", self._array(np.asarray(value))]

    def _dtype(self, value: np.dtype[Any]) -> list[Any]:
        return ["dtype", np.lib.format.dtype_to_descr(value)]

    def _class(self, value: type) -> list[Any]:
        return ["class", *self._named(value)]

    def _enum(self, value: enum.Enum) -> list[Any]:
        return ["enum", *self._named(type(value)), value.name]

    def _encoded_items(self, values: Any) -> list[Any]:
        return list(values) if all(map(_is_json_value, values)) else [self.written(each) for each in values]

    def _named(self, what: Any) -> tuple[str, str]:
        module, name = str(getattr(what, "__module__", "?")), str(getattr(what, "__qualname__", type(what).__qualname__))
        if not is_sent(module, name):
            self._refuse(what)
        return module, name

    def _refuse(self, what: Any) -> None:
        named = f"{getattr(what, '__module__', '?')}.{getattr(what, '__qualname__', type(what).__qualname__)}"
        raise EngineError(f"a result of a task holds {named}, which no worker may send: report it as a fault of dpdist")

    def _array(self, value: np.ndarray[Any, Any]) -> list[Any]:
        if value.dtype.hasobject:
            self._refuse(np.ndarray)
        order: Literal["F", "C"] = "F" if value.flags.f_contiguous and not value.flags.c_contiguous else "C"
        dtype = np.lib.format.dtype_to_descr(value.dtype)
        return ["array", dtype, list(value.shape), order, *self._append_bytes(value.tobytes(order))]

    def _append_bytes(self, data: bytes) -> tuple[int, int]:
        start = self.size
        self.buffers += [data, bytes(-len(data) % ALIGNED)]
        self.size += len(data) + (-len(data) % ALIGNED)
        return start, len(data)


WRITERS: tuple[tuple[Any, Callable[[_Encoder, Any], list[Any]]], ...] = (
    ((bytes, bytearray), _Encoder._bytes),
    ((slice, range), _Encoder._ends),
    (datetime.timedelta, _Encoder._timedelta),
    (enum.Enum, _Encoder._enum),
    (np.generic, _Encoder._scalar),
    (np.dtype, _Encoder._dtype),
    (type, _Encoder._class),
)
"""What writes values of a type that hold no others."""


class _Decoder:
    def __init__(self, data: np.ndarray[Any, np.dtype[np.uint8]]) -> None:
        length = int.from_bytes(data[:HEAD_BYTES].tobytes(), "little")
        end = HEAD_BYTES + length
        self.document = json.loads(data[HEAD_BYTES:end].tobytes())
        self.buffers = data[end + (-end % ALIGNED) :]
        self.known: list[Any] = []

    def decode(self) -> Any:
        return self.read(self.document)

    def read(self, written: Any) -> Any:
        """The value that a part of the document is."""
        if not isinstance(written, list):
            return written
        tag, *parts = written
        return TEXTS[tag][2](*parts) if tag in TEXTS else READERS[tag](self, *parts)

    def _encoded_items(self, values: list[Any]) -> list[Any]:
        return [self.read(each) if isinstance(each, list) else each for each in values]

    def _tuple_(self, values: list[Any]) -> tuple[Any, ...]:
        return tuple(self._encoded_items(values))

    def _list_(self, values: list[Any]) -> list[Any]:
        return self._encoded_items(values)

    def _set_(self, values: list[Any]) -> set[Any]:
        return set(self._encoded_items(values))

    def _frozenset_(self, values: list[Any]) -> frozenset[Any]:
        return frozenset(self._encoded_items(values))

    def _dict_(self, keys: list[Any], values: list[Any]) -> dict[Any, Any]:
        return dict(zip(self._encoded_items(keys), self._encoded_items(values), strict=True))

    def _counter_(self, keys: list[Any], values: list[Any]) -> Counter[Any]:
        return Counter(self._dict_(keys, values))

    def _bytes_(self, start: int, size: int) -> bytes:
        return self.buffers[start : start + size].tobytes()

    def _bytearray_(self, start: int, size: int) -> bytearray:
        return bytearray(self._bytes_(start, size))

    def _slice_(self, ends: list[Any]) -> slice:
        return slice(*self._encoded_items(ends))

    def _range_(self, ends: list[Any]) -> range:
        return range(*self._encoded_items(ends))

    def _timedelta_(self, days: int, seconds: int, microseconds: int) -> datetime.timedelta:
        return datetime.timedelta(days, seconds, microseconds)

    def _scalar_(self, array: list[Any]) -> Any:
        return self._ndarray(*array[1:])[()]

    def _dtype_(self, dtype: Any) -> np.dtype[Any]:
        return _dtype(dtype)

    def _class_(self, module: str, name: str) -> type:
        return _class(module, name)

    def _enum_(self, module: str, name: str, member: str) -> Any:
        kind = _class(module, name)
        if not issubclass(kind, enum.Enum):
            raise TypeError
        return kind[member]

    def _same_(self, number: int) -> Any:
        return self.known[number]

    def _array_(self, *parts: Any) -> np.ndarray[Any, Any]:
        number = self._number()
        self.known[number] = made = self._ndarray(*parts)
        return made

    def _csr_array_(self, shape: list[int], *parts: Any) -> Any:
        import scipy.sparse

        number = self._number()
        self.known[number] = made = scipy.sparse.csr_array(tuple(map(self.read, parts)), shape=tuple(shape))
        return made

    def _csr_matrix_(self, shape: list[int], *parts: Any) -> Any:
        import scipy.sparse

        number = self._number()
        self.known[number] = made = scipy.sparse.csr_matrix(tuple(map(self.read, parts)), shape=tuple(shape))
        return made

    def _error_(self, module: str, name: str, arguments: list[Any], state: Any) -> Any:
        number, kind = self._number(), _class(module, name)
        if not issubclass(kind, DpdistError):
            raise TypeError
        self.known[number] = made = kind(*self._encoded_items(arguments))
        vars(made).update(self.read(state))
        return made

    def _values_(self, module: str, name: str, values: list[Any]) -> Any:
        number, kind = self._number(), _class(module, name)
        if not issubclass(kind, tuple):
            raise TypeError
        self.known[number] = made = tuple.__new__(kind, self._encoded_items(values))
        return made

    def _made_(self, module: str, name: str, arguments: list[Any]) -> Any:
        _check_sent(module, name)
        number, made_by = self._number(), getattr(importlib.import_module(module), name)
        if isinstance(made_by, type) and not _own_reduction(made_by):
            raise TypeError
        self.known[number] = made = made_by(*self._encoded_items(arguments))
        return made

    def _object_(self, module: str, name: str, state: Any) -> Any:
        number, kind = self._number(), _class(module, name)
        if _own_reduction(kind):
            raise TypeError
        made: Any = object.__new__(kind)
        self.known[number] = made
        vars(made).update(self.read(state))
        return made

    def _number(self) -> int:
        """The number of an object, before those that it holds."""
        self.known.append(None)
        return len(self.known) - 1

    def _ndarray(self, dtype: Any, shape: list[int], order: Any, start: int, size: int) -> np.ndarray[Any, Any]:
        flat = self.buffers[start : start + size].copy().view(_dtype(dtype))
        return flat.reshape(shape, order=order)


READERS: dict[str, Callable[..., Any]] = {
    name[1:-1]: reader for name, reader in vars(_Decoder).items() if name[:1] == "_" != name[1:2] and name[-1:] == "_"
}
"""What reads each form of a value, by the word that a document begins it with."""


def _class(module: str, name: str) -> type:
    _check_sent(module, name)
    found = getattr(importlib.import_module(module), name)
    if not isinstance(found, type):
        raise TypeError
    return found


def _dtype(descr: Any) -> np.dtype[Any]:
    """A dtype of its description in a document, where tuples are lists. Raises: TypeError for one of objects."""
    fields = [tuple(each) for each in descr] if isinstance(descr, list) else descr
    found: np.dtype[Any] = np.lib.format.descr_to_dtype(fields)
    if found.hasobject:
        raise TypeError
    return found
