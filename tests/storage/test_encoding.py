"""Results of tasks: what comes back is what was sent, and nothing else is made of a document that names something else."""

from __future__ import annotations

import datetime
import decimal
import json
import re
from collections import Counter
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given
from hypothesis import strategies as st

import dpdist as dp
from dpdist.engine.result_encoding import READERS, TEXTS, decode, encode
from dpdist.engine.tasks import fetch_result
from dpdist.errors import EngineError, KeyUnavailable, OutOfMemory
from dpdist.operators import Dense
from dpdist.privacy.accounting import Loss
from dpdist.privacy.keys import Secret
from dpdist.privacy.noise_distributions import Kind
from dpdist.storage.array_store import Store
from dpdist.storage.objects.storage_location import FileState


def sent(value: Any) -> Any:
    """What is read of an encoded value."""
    return decode(np.frombuffer(encode(value), dtype=np.uint8))


PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary()
    | st.fractions()
    | st.dates(),
    lambda inner: st.lists(inner) | st.tuples(inner, inner) | st.dictionaries(st.text() | st.integers(), inner),
    max_leaves=12,
)


@given(PLAIN)
def test_plain_values_come_back(value: Any) -> None:
    assert sent(value) == value
    assert repr(sent(value)) == repr(value)


VALUES = [
    (1, 2),
    [1, None],
    {"a"},
    frozenset({"a"}),
    {"a": 1, 2: "b"},
    Counter("hello"),
    slice(1, None),
    range(2, 9, 3),
    2**80,
    1 + 2j,
    Fraction(1, 3),
    decimal.Decimal("1.50"),
    datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC),
    datetime.date(2026, 1, 2),
    datetime.time(12, 30),
    datetime.timedelta(1, 2, 3),
    np.float64(2.5),
    np.dtype("int64"),
    b"x",
    bytearray(b"x"),
    Dense,
    Kind.LAPLACE,
    FileState(1, "2"),
    Loss.gaussian(Fraction(1, 2)),
]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_values_come_back(value: Any) -> None:
    found = sent(value)
    assert found == value
    assert type(found) is type(value)


def test_integers_of_any_length_come_back() -> None:
    """JSON takes no more than 4,300 digits."""
    for value in (-(10**5000), Fraction(10**5000, 7)):
        assert sent(value) == value


def test_arrays_come_back_in_their_order_and_once() -> None:
    array = np.asfortranarray(np.arange(6.0).reshape(2, 3))
    first, second, fields, none = sent((array, array, np.zeros(3, dtype=[("a", "<i4"), ("b", "<f8")]), np.zeros((0, 3))))
    assert first is second
    assert first.flags.f_contiguous
    assert first.flags.writeable
    np.testing.assert_array_equal(first, array)
    assert fields.dtype.names == ("a", "b")
    assert none.shape == (0, 3)


def test_objects_come_back() -> None:
    strategy = sent(dp.strategies.hierarchical((4, 8)))
    np.testing.assert_array_equal(strategy.matrix(), dp.strategies.hierarchical((4, 8)).matrix())
    assert str(sent(OutOfMemory("a stage", 2, 1, "cure"))) == str(OutOfMemory("a stage", 2, 1, "cure"))
    for sparse in (scipy.sparse.csr_array, scipy.sparse.csr_matrix):
        rows = sent(sparse(np.eye(3)))
        assert type(rows) is sparse
        np.testing.assert_array_equal(rows.toarray(), np.eye(3))


def test_what_is_no_value_is_not_sent() -> None:
    for value in (print, lambda: 0, object(), np.array([None]), Secret(bytes(32)), OSError("x")):
        with pytest.raises((EngineError, KeyUnavailable, TypeError)):
            encode(value)


def document(value: Any) -> np.ndarray:
    """The bytes of a JSON document without arrays."""
    text = json.dumps(value).encode()
    return np.frombuffer(len(text).to_bytes(8, "little") + text, dtype=np.uint8)


HOMES = {
    "enum": ["dpdist.privacy.noise_distributions", "Kind"],
    "error": ["dpdist.errors", "EngineError"],
    "values": ["dpdist.storage.objects.storage_location", "FileState"],
    "made": ["dpdist.reconstruction.least_squares", "SharedArray"],
    "object": ["dpdist.operators.dense_matrix", "Dense"],
}
"""A class that is sent in each form."""
FORMS: dict[str, list[Any]] = {
    "enum": ["LAPLACE"],
    "error": [["x"], ["dict", [], []]],
    "values": [[1, "2"]],
    "made": [[None, [1]]],
}
"""What else a document holds of a class. Every class but those that say themselves what they are made of is read as an object, too."""
HOSTILE = [
    ["made", "os", "system", ["true"]],
    ["made", "posix", "system", ["true"]],
    ["made", "builtins", "eval", ["1"]],
    ["made", "dpdist.storage.array_store", "Store", ["/tmp"]],
    ["made", "dpdist.storage.array_store", "os.system", ["true"]],
    ["made", "dpdist.operators.dense_matrix", "Dense", [1]],
    ["object", "dpdist.privacy.keys", "Secret", {}],
    ["object", "dpdist.engine.runner", "Engine", ["dict", [], []]],
    ["object", "dpdist.errors", "EngineError", ["dict", [], []]],
    ["class", "subprocess", "Popen"],
    *([form, *home, *parts] for form, parts in FORMS.items() for sort, home in HOMES.items() if sort != form),
    ["dict", ["a", "b"], [1]],
    ["counter", ["a"], [1, 2]],
    ["_init_", 1],
    ["number", 1],
    ["same", 7],
    ["array", "|O", [1], "C", 0, 8],
    ["array", "<f8", [9], "C", 0, 8],
    ["nothing"],
    [],
    ["tuple"],
]


@pytest.mark.parametrize("value", HOSTILE)
def test_a_hostile_document_is_refused_in_one_line(value: Any) -> None:
    with pytest.raises(EngineError, match=r"^the cluster sent [^\n]*$"):
        decode(document(value))


def test_every_form_comes_back() -> None:
    """No reader is left out of the values that are sent above, and no other method of the decoder reads."""
    array = np.zeros(2)
    values = [
        *VALUES,
        array,
        array,
        Store("x"),
        EngineError("x"),
        scipy.sparse.csr_array(np.eye(3)),
        scipy.sparse.csr_matrix(np.eye(3)),
    ]
    encoded = encode(values)
    assert set(re.findall(r'\["(\w+)"', encoded.decode("latin-1"))) >= READERS.keys() | TEXTS.keys()
    assert not {"init", "class_", ""} & READERS.keys()


@pytest.mark.parametrize("reference", [5, ("../x", 1, "d"), ("/x", 1, "d"), ("x", "1", "d"), ("x", 1), object()])
def test_what_is_no_reference_is_refused(reference: Any, tmp_path: Any) -> None:
    with pytest.raises(EngineError, match="no reference to a result"):
        fetch_result(Store(tmp_path), reference)
