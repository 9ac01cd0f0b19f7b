"""What single operators do beyond their contract (contracts/test_operators.py): names, bounds, refusals."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import scipy

from dpdist.errors import InvalidInput
from dpdist.operators import (
    AllRanges,
    Circulant,
    Dense,
    Dyadic,
    Fourier,
    Haar,
    Hadamard,
    Identity,
    Kronecker,
    ListedRanges,
    Marginal,
    Permuted,
    Prefix,
    Product,
    Ring,
    RowScaled,
    Scaled,
    Sparse,
    Stack,
    Toeplitz,
    Total,
    Tree,
)

STATE = np.random.default_rng(3)


def test_stacks_beyond_their_columns_bound_their_sensitivity() -> None:
    """Domains that cannot be enumerated: the bound is exact where all columns are alike, else above."""
    marginals = Stack([Kronecker([Identity(10**5), Total(10**5)]), Kronecker([Total(10**5), Identity(10**5)])])
    assert marginals.l2_sensitivity == pytest.approx(np.sqrt(2))
    assert marginals.l1_sensitivity == 2
    assert marginals.frobenius_squared == 2e10
    assert Scaled(-2.0, marginals).l2_sensitivity == pytest.approx(2 * np.sqrt(2))


def test_products_of_whole_numbers_are_whole_and_others_are_not() -> None:
    whole, halves = Prefix(3), Scaled(0.5, Prefix(3))
    assert Product(whole, whole).integral
    assert not Product(whole, halves).integral
    assert not Product(halves, whole).integral


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
        (lambda: Sparse(scipy.sparse.csr_array(np.array([[1.0, np.inf]]))), "NaN or infinite"),
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
        points = 6 + operator.padding_steps
        around = Circulant(points, operator.coefficients, operator.first_lag)
        np.testing.assert_allclose(around.dense()[:6, :6], operator.dense())
        x = STATE.standard_normal(points)
        np.testing.assert_allclose(np.fft.rfft(around.dense() @ x), operator.spectrum(points) * np.fft.rfft(x), atol=1e-12)


def test_sensitivities_that_structure_gives_take_no_rows() -> None:
    """Planning all pairs of fourteen attributes asked for 2e10 GiB: it counted a row of 6e17 cells."""
    sizes = [85, 9, 100, 16, 7, 15, 6, 5, 2, 100, 100, 99, 42, 2]
    tables = Stack([Marginal(sizes, pair) for pair in itertools.combinations(range(14), 2)])
    assert tables.shape[1] > 10**17
    assert tables.sensitivity_bytes < 2**20
    assert tables.l2_sensitivity == pytest.approx(np.sqrt(91))
    assert Dense(STATE.standard_normal((64, 2048))).sensitivity_bytes >= 8 * 64 * 2048  # its rows are looked at
    assert Stack([Prefix(64), Identity(64)]).sensitivity_bytes > Prefix(64).sensitivity_bytes


def test_row_norms_of_a_formula_over_a_table_need_no_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its rows are as many as the cells: at 2^20 of them, planning computed 2^40 entries."""
    formula = Dyadic(np.array([0.0, 1.0, -2.0, 0.5, 0.0, 0.0, 3.0, 1.0]))
    for operator in (Product(formula, Marginal((2, 3, 2, 2), (0, 2, 3))), Product(formula, Marginal((2, 2, 2), (0, 1, 2)))):
        expected = (operator.dense() ** 2).sum(axis=1)
        with monkeypatch.context() as planted:
            planted.setattr(Dyadic, "rows", None)
            np.testing.assert_allclose(operator.row_norms_squared(), expected, rtol=1e-14)
            assert operator.longest_row_squared == pytest.approx(expected.max())
