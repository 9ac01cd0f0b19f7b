"""One contract for every operator, against its dense form."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse

from dpdist.errors import InvalidInput
from dpdist.operators import (
    AllRanges,
    Circulant,
    Dense,
    Dyadic,
    Fourier,
    Generated,
    Haar,
    Hadamard,
    Identity,
    Kronecker,
    ListedRanges,
    Marginal,
    Operator,
    Permuted,
    Prefix,
    Product,
    Ring,
    RowScaled,
    RowsScaled,
    Scaled,
    Sparse,
    Stack,
    Tall,
    Toeplitz,
    Total,
    Tree,
)

STATE = np.random.default_rng(3)
INTEGERS = STATE.integers(-2, 3, (5, 4))
OPERATORS: list[Operator] = [
    Identity(5),
    Total(4),
    Prefix(6),
    AllRanges(5),
    ListedRanges(6, np.array([[0, 2], [3, 3], [1, 5]])),
    Haar(8),
    Tree(7, 3),
    Tree(1),
    Tall(Generated((5, 4), lambda start, stop: INTEGERS[start:stop])),
    Tall(RowsScaled(Generated((5, 4), lambda start, stop: INTEGERS[start:stop]), np.array([1.0, 0.5, 2.0, 1.5, 1.0]))),
    Dense(INTEGERS),
    Dense(STATE.standard_normal((3, 4))),
    Sparse(scipy.sparse.csr_array(INTEGERS)),
    Kronecker([Prefix(3), Total(2), Identity(2)]),
    Kronecker([AllRanges(3), Dense(INTEGERS)]),
    Scaled(0.5, Prefix(4)),
    Scaled(3.0, Prefix(4)),
    Stack([Prefix(4), Dense(INTEGERS), Total(4)]),
    Product(Dense(INTEGERS), Prefix(4)),
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


def test_stacks_beyond_their_columns_bound_their_sensitivity() -> None:
    """Domains that cannot be enumerated: the bound is exact where all columns are alike, else above."""
    marginals = Stack([Kronecker([Identity(10**5), Total(10**5)]), Kronecker([Total(10**5), Identity(10**5)])])
    assert marginals.l2_sensitivity == pytest.approx(np.sqrt(2))
    assert marginals.l1_sensitivity == 2
    assert marginals.frobenius_squared == 2e10
    assert Scaled(-2.0, marginals).l2_sensitivity == pytest.approx(2 * np.sqrt(2))


def test_row_blocks_cover_all_rows() -> None:
    blocks = list(AllRanges(40).row_blocks(block_bytes=8 * 40 * 7))
    assert blocks[0] == (0, 7)
    assert blocks[-1][1] == AllRanges(40).shape[0]
    assert all(a[1] == b[0] for a, b in zip(blocks, blocks[1:], strict=False))


def test_all_ranges_ends_and_order() -> None:
    operator = AllRanges(4)
    assert [tuple(ends) for ends in operator.ends(0, 10)] == [(i, j) for i in range(4) for j in range(i, 4)]


def test_rows_are_named_after_the_cells() -> None:
    days = ["mon", "tue", "wed"]
    assert Prefix(3).row_names(1, 3, days) == ["up to tue", "up to wed"]
    assert AllRanges(3).row_names(0, 3, days) == ["mon .. mon", "mon .. tue", "mon .. wed"]
    assert Haar(3).row_names(0, 3, days) == ["all", "mon .. tue minus wed .. wed", "mon .. mon minus tue .. tue"]
    assert Tree(3).row_names(0, 2, days) == ["mon .. wed", "mon .. tue"]
    assert Marginal((3, 2), (0,)).row_names(0, 1, days, ["f", "m"]) == ["mon, all"]
    assert Kronecker([Identity(3), Identity(2)]).row_names(3, 4, days, ["f", "m"]) == ["tue, m"]
    assert Fourier(4).row_names(0, 4) == ["mean", "cosine 1", "sine 1", "cosine 2"]
    assert Hadamard(2).row_names(0, 4) == ["all", "parity of 1", "parity of 0", "parity of 0, 1"]
    assert Permuted(Prefix(3), np.array([2, 0, 1])).row_names(0, 2, days) == ["up to wed", "up to mon"]
    with pytest.raises(InvalidInput, match="3 cells need 3 names"):
        Prefix(3).row_names(0, 1, ["mon"])


def test_fingerprint_depends_on_content() -> None:
    assert Dense(np.eye(3)).fingerprint != Dense(2 * np.eye(3)).fingerprint
    assert Prefix(3).fingerprint != Identity(3).fingerprint
    assert Kronecker([Prefix(3), Total(2)]).fingerprint == Kronecker([Prefix(3), Total(2)]).fingerprint


@pytest.mark.parametrize(
    ("build", "match"),
    [
        (lambda: Dense(np.array([[np.nan]])), "NaN"),
        (lambda: Dense(np.array([1.0])), "2 dimensions"),
        (lambda: Dense(np.array([[1j]])), "complex"),
        (lambda: Tree(4, 1), "branching"),
        (lambda: Permuted(Prefix(3), np.array([0, 0, 1])), "each of them once"),
        (lambda: ListedRanges(4, np.array([[2, 1]])), "first <= last"),
        (lambda: Stack([Prefix(3), Prefix(4)]), "same number of cells"),
        (lambda: Product(Prefix(3), Prefix(4)), "do not chain"),
        (lambda: Identity(0), "positive"),
        (lambda: Fourier(0), "positive"),
        (lambda: Toeplitz(4, np.zeros(3)), "all zero"),
        (lambda: Toeplitz(4, np.array([1.0, np.nan])), "NaN"),
        (lambda: Toeplitz(4, np.array([1j])), "complex"),
        (lambda: Toeplitz(4, np.zeros(0)), "at least one coefficient"),
        (lambda: Toeplitz(4, np.ones(2), 4), "reaches any of the 4 steps"),
        (lambda: Circulant(4, np.zeros(3)), "all zero"),
        (lambda: Ring(4, 5, np.ones(3)), "does not fit"),
        (lambda: Hadamard(-1), "bits"),
        (lambda: Dyadic(np.ones(3)), "2\\^d finite values"),
        (lambda: Dyadic(np.zeros(4)), "zero everywhere"),
        (lambda: RowScaled(np.array([1.0, 0.0, 1.0]), Prefix(3)), "positive finite scales"),
        (lambda: Marginal((2, 3), (0, 2)), "distinct attributes"),
    ],
)
def test_refusals(build: object, match: str) -> None:
    with pytest.raises(InvalidInput, match=match):
        build()


def test_a_filter_is_the_top_of_its_circle() -> None:
    """The circulant matrix of enough points, cut to n x n, is the filter; its eigenvalues are the spectrum."""
    for operator in (Toeplitz(6, np.array([1.0, 2.0, -1.0])), Toeplitz(6, np.array([0.5, 2.0, -1.0, 0.25]), -2)):
        points = 6 + operator.reach
        around = Circulant(points, operator.coefficients, operator.first_lag)
        np.testing.assert_allclose(around.dense()[:6, :6], operator.dense())
        x = STATE.standard_normal(points)
        np.testing.assert_allclose(np.fft.rfft(around.dense() @ x), operator.spectrum(points) * np.fft.rfft(x), atol=1e-12)
