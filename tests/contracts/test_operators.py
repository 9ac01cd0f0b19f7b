"""What every operator promises: products, rows, grams and norms are those of its dense form, whole or in pieces."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse

from dpdist import operators
from dpdist.operators import (
    AllRanges,
    Circulant,
    Dense,
    Dyadic,
    Fourier,
    Generated,
    Groups,
    Haar,
    Hadamard,
    Identity,
    Kronecker,
    ListedRanges,
    Marginal,
    Operator,
    Padded,
    Permuted,
    Prefix,
    Product,
    Ring,
    RowScaled,
    RowsScaled,
    Scaled,
    Sparse,
    Stack,
    StepMeans,
    TallMatrix,
    Toeplitz,
    Total,
    Tree,
)
from dpdist.operators.out_of_core import as_row_source

STATE = np.random.default_rng(3)
INTEGERS = STATE.integers(-2, 3, (5, 4))
OPERATORS: list[Operator] = [
    Identity(5),
    Total(4),
    Prefix(6),
    StepMeans(Toeplitz(5, np.array([1.0, 1.0, 1.0]))),
    AllRanges(5),
    ListedRanges(6, np.array([[0, 2], [3, 3], [1, 5]])),
    Groups(np.array([1, 0, 2, -1, 1]), 3),
    Haar(8),
    Tree(7, 3),
    Tree(1),
    TallMatrix(Generated((5, 4), lambda start, stop: INTEGERS[start:stop])),
    TallMatrix(RowsScaled(Generated((5, 4), lambda start, stop: INTEGERS[start:stop]), np.array([1.0, 0.5, 2.0, 1.5, 1.0]))),
    TallMatrix(as_row_source(scipy.sparse.csr_array(INTEGERS))),
    TallMatrix(RowsScaled(as_row_source(scipy.sparse.csr_array(INTEGERS)), np.array([1.0, 0.5, 2.0, 1.5, 1.0]))),
    Dense(INTEGERS),
    Dense(STATE.standard_normal((3, 4))),
    Sparse(scipy.sparse.csr_array(INTEGERS)),
    Kronecker([Prefix(3), Total(2), Identity(2)]),
    Kronecker([AllRanges(3), Dense(INTEGERS)]),
    Scaled(0.5, Prefix(4)),
    Scaled(3.0, Prefix(4)),
    Stack([Prefix(4), Dense(INTEGERS), Total(4)]),
    Product(Dense(INTEGERS), Prefix(4)),
    Padded(Prefix(4), 2),
    Padded(Dense(INTEGERS), 1),
    Padded(Toeplitz(5, np.array([1.0, 0.5])), 1),
    Kronecker([Padded(AllRanges(3), 1), Padded(Identity(2), 1), Total(2)]),
    RowScaled(np.array([2.0, 3.0]), Padded(Identity(2), 1)),
    Permuted(Prefix(5), np.array([3, 0, 4, 1, 2])),
    Permuted(Kronecker([Total(2), Identity(3)]), np.arange(6)[::-1]),
    Haar(5),
    Haar(1),
    Fourier(1),
    Fourier(2),
    Fourier(7),
    Fourier(8),
    Hadamard(0),
    Hadamard(3),
    Dyadic(np.array([1.0, 0.0, 2.0, 1.0])),
    Dyadic(np.array([0.5, -1.0])),
    Product(Dyadic(np.array([0.0, 1.0, 1.0, 1.0])), Marginal((2, 3, 2), (0, 2))),
    Marginal((2, 3, 2), (2, 0)),
    Marginal((2, 3), ()),
    Toeplitz(6, np.array([1.0, 2.0, -1.0])),
    Toeplitz(6, np.array([0.5, 2.0, -1.0, 0.25]), -2),
    Toeplitz(5, np.array([3.0, 1.0]), 2),
    Toeplitz(4, np.ones(9)),
    Toeplitz(1, np.array([2.0])),
    Circulant(6, np.array([0.5, 2.0, -1.0]), -1),
    Circulant(5, np.array([1.0, 2.0]), 3),
    Circulant(3, np.arange(1.0, 8.0)),
    Ring(7, 4, np.array([2.0, 1.0, 0.0, -1.0])),
    RowScaled(np.array([0.5, 2.0, 3.0, 0.25]), Prefix(4)),
    RowScaled(np.arange(1, 11), AllRanges(4)),
    RowScaled(np.array([2.0, 3.0, 1.0]), ListedRanges(6, np.array([[0, 2], [3, 3], [1, 5]]))),
    RowScaled(np.array([2.0, 0.1]), Identity(2)),
    RowScaled(np.array([0.1]), Total(4)),
    Kronecker([RowScaled(np.arange(1, 7) / 3, AllRanges(3)), RowScaled(np.arange(1, 3), Prefix(2))]),
]


@pytest.mark.parametrize("operator", OPERATORS, ids=lambda o: repr(o))
def test_contract(operator: Operator) -> None:
    m, n = operator.shape
    dense = np.array([operator.matvec(column) for column in np.eye(n)]).T
    assert dense.shape == (m, n)
    np.testing.assert_allclose(operator.dense(), dense, atol=1e-12)
    x, y = STATE.standard_normal(n), STATE.standard_normal(m)
    np.testing.assert_allclose(operator.rmatvec(y), dense.T @ y, atol=1e-12)
    batch = STATE.standard_normal((n, 3))
    np.testing.assert_allclose(operator.matvec(batch), dense @ batch, atol=1e-12)
    np.testing.assert_allclose(
        operator.rmatvec(STATE.standard_normal((m, 2)) * 0 + 1), dense.T @ np.ones((m, 2)), atol=1e-12
    )
    np.testing.assert_allclose(operator.matvec(x), dense @ x, atol=1e-12)
    np.testing.assert_allclose(operator.rows(m // 2, m), dense[m // 2 :], atol=1e-12)
    np.testing.assert_allclose(operator.gram(), dense.T @ dense, atol=1e-10)
    np.testing.assert_allclose(operator.gram_block(slice(1, n), slice(0, 1)), (dense.T @ dense)[1:, :1], atol=1e-10)
    np.testing.assert_allclose(operator.column_norms_squared(), (dense**2).sum(axis=0), atol=1e-10)
    assert operator.l2_sensitivity == pytest.approx(np.sqrt((dense**2).sum(axis=0).max()))
    np.testing.assert_allclose(operator.column_norms_l1(), np.abs(dense).sum(axis=0), atol=1e-10)
    assert operator.l1_sensitivity == pytest.approx(np.abs(dense).sum(axis=0).max())
    assert operator.frobenius_squared == pytest.approx((dense**2).sum())
    assert operator.longest_row_squared == pytest.approx((dense**2).sum(axis=1).max())
    np.testing.assert_allclose(operator.row_norms_squared(), (dense**2).sum(axis=1), atol=1e-10)
    weights = STATE.uniform(0.5, 2.0, m)
    np.testing.assert_allclose(operator.weighted_gram(weights), dense.T @ (weights[:, None] * dense), atol=1e-10)
    form = dense.T @ dense + np.eye(n)
    np.testing.assert_allclose(operator.row_quadratics(form), np.einsum("ij,ij->i", dense @ form, dense), rtol=1e-10)
    for rows in (1, 2, 3):
        pieces = list(operator.row_blocks(block_bytes=8 * n * rows))
        assert [start for start, _ in pieces] == [0, *(stop for _, stop in pieces[:-1])]
        assert pieces[-1][1] == m
        np.testing.assert_allclose(np.vstack([operator.rows(*piece) for piece in pieces]), dense, atol=1e-12)
    names = operator.row_names(0, m)
    assert len(set(names)) == m
    assert operator.row_names(m // 2, m) == names[m // 2 :]
    assert operator.integral == bool((dense == np.rint(dense)).all())
    assert operator.fingerprint == operator.fingerprint
    if operator.integral:
        big = STATE.integers(2**40, 2**41, n)
        exact = np.array([sum(int(a) * int(b) for a, b in zip(row, big, strict=True)) for row in np.rint(dense)])
        found = operator.matvec(big)
        assert found.dtype == np.int64
        assert (found == exact).all()


def test_every_operator_has_a_case() -> None:
    """Those that the library names, except the bases that only others stand on."""
    named = {getattr(operators, name) for name in operators.__all__}
    known = {kind for kind in named if isinstance(kind, type) and issubclass(kind, Operator) and kind is not Operator}
    assert {type(operator) for operator in OPERATORS} == known
