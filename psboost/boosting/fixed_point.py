"""Knows steps, rounding and exact sums; does not know trees or messages.

Steps are powers of two, so scaling is exact and only the rounding to an integer loses anything; or all gradients are
whole steps, and nothing is lost. Integer sums are the same in any order, which is what makes the model the same on every
grid.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from psboost.boosting.losses import Bounds
from psboost.kernels import gradients as kernels
from psboost.kernels.floats import WHOLE_BITS
from psboost.kernels.packed_rows import hess_mask

_SUM_BITS = 62
_LEAF_BITS = WHOLE_BITS - 1
_FURTHEST = 1000  # exponent of a label: a float32 has none so far from 0
_UNREACHABLE = 2.0**_SUM_BITS  # more than any sum; as large as int64 can hold with ease


def power_above(x: float) -> int:
    """The smallest k with 2^k >= x; -126 for x = 0, so a step never is 0."""
    if x <= 0.0:
        return -126
    fraction, exponent = math.frexp(x)
    return exponent - 1 if fraction == 0.5 else exponent


@dataclass(frozen=True)
class Steps:
    """What one unit of an integer sum is worth: for histograms, and for leaf sums at full precision.

    exact  whether every row's grad and hess are so many whole steps, but for float32's last place: they are then rounded to
           the nearest one, and not at random
    """

    grad: float
    hess: float
    leaf_grad: float
    leaf_hess: float
    exact: bool = False


_EXACT_BITS = 16  # a row's exact grad and hess have no more, with any grad_bits: they fit the narrowest packed row
_FEW_ROWS = 1 << 14
_MOST_UNEVEN = float(1 << 13)  # times the least weight above 0, the greatest is, with 16 bits; or times the usual label


def bits_for(grad_bits: int | None, n_rows: int, unevenness: float) -> int:
    """Bits of a row's grad and hess: as asked, or by default 16; and 32 below 16,384 rows, or where the greatest weight is
    more than 8,192 times the least one above 0, or of an unbounded loss the greatest label so many times the usual one
    (`unevenness`).

    So few rows have small histograms anyhow, and near ties among their splits, which rounding to 16 bits would decide. A
    hess is a step at least: with 16 bits, small weights beside such large ones would come to more than they are. And beside
    a label that is an outlier, usual rows' grads would be rounded to steps as long as they are.
    """
    if grad_bits is not None:
        return grad_bits
    return 32 if n_rows < _FEW_ROWS or unevenness > _MOST_UNEVEN else 16


def sizes_of(labels: np.ndarray) -> np.ndarray:
    """int64 (n, 2): an exponent of 2, and how many labels are less than that power, but not than the one before. Those of 0
    are in none."""
    exponents = np.frexp(np.abs(labels[labels != 0]))[1]
    first = exponents.min(initial=0)
    counts = np.bincount(exponents - first)
    present = np.flatnonzero(counts)
    return np.stack([first + present, counts[present]], axis=1).astype(np.int64)


def usual_size(sizes: Iterable[np.ndarray], n_rows: int) -> float:
    """The mean of n_rows labels' absolute values, or up to twice as much, the same however they are shared out. sizes: as
    sizes_of has them."""
    whole = Fraction(0)
    for exponent, count in (pair for of_some in sizes for pair in of_some.tolist()):
        whole += count * Fraction(2) ** min(max(exponent, -_FURTHEST), _FURTHEST)
    return float(whole / n_rows)


def steps_for(bounds: Bounds, grad_bits: int, n_rows: int) -> Steps:
    """Steps such that a row's hess is at most 2^(grad_bits - 1) and its |grad| four times as much, if both fit their halves
    of a packed row (16 bits: 2^15 each, 32: 2^30); and no leaf sum of n_rows overflows int64, and no row has more than
    2^_LEAF_BITS leaf steps.

    Grads of both signs nearly cancel in a sum, whose error is then large beside it; hessians do not.
    """
    grad, hess = power_above(bounds.grad), power_above(bounds.hess)
    row_bits = max(power_above(float(max(n_rows, 1))) + 1, _SUM_BITS - _LEAF_BITS)
    return Steps(
        grad=math.ldexp(1.0, grad - _bits_of_grad(grad_bits)),
        hess=math.ldexp(1.0, hess - _bits_of_hess(grad_bits)),
        leaf_grad=math.ldexp(1.0, grad + row_bits - _SUM_BITS),
        leaf_hess=math.ldexp(1.0, hess + row_bits - _SUM_BITS),
    )


def exact_steps(steps: Steps, loss, base_score: float, weight: float) -> Steps:
    """`steps`; or, if there are any, such that all rows' gradients are whole steps as long as margins are base_score's. All
    rows have this weight, or 0.

    So equal sums stay equal: in the first tree, features that part as many rows of each label gain the same, and which of
    them is taken must not be left to rounding, as all trees behind it would be others.
    """
    found = loss.exact_steps(base_score, (1 << _bits_of_grad(_EXACT_BITS)) - 1)
    return steps if found is None else replace(steps, grad=weight * found[0], hess=weight * found[1], exact=True)


def _bits_that_fit(grad_bits: int) -> int:
    """log2 of the most steps that a half of a packed row has room for."""
    return 15 if grad_bits <= 16 else 30


def _bits_of_grad(grad_bits: int) -> int:
    """log2 of the most steps that a grad has."""
    return min(grad_bits + 1, _bits_that_fit(grad_bits))


def _bits_of_hess(grad_bits: int) -> int:
    """log2 of the most steps that a hess has."""
    return min(grad_bits - 1, _bits_that_fit(grad_bits))


def greatest_sum(grad_bits: int, n_rows: int) -> int:
    """More than n_rows rows' grads or hesses cannot come to, in steps."""
    return n_rows << _bits_of_grad(max(grad_bits, _EXACT_BITS))


def least_units(min_child_weight: float, step: float) -> int:
    """The smallest integer sum_hess that is at least min_child_weight; 1 at least, an empty child is none."""
    return max(1, math.ceil(min(min_child_weight / step, _UNREACHABLE)))


def least_rows(min_child_weight: float, bounds: Bounds, steps: Steps) -> int:
    """A feature stored in fewer rows than this can never be split, however the gradients are rounded."""
    if bounds.hess <= 0:
        return 1
    return max(1, math.ceil(min(min_child_weight / (bounds.hess + steps.hess), _UNREACHABLE)))


def rounding_key(seed: int, tree: int) -> np.uint64:
    """The key of one tree's random rounding."""
    digest = np.random.SeedSequence([seed & 0xFFFFFFFFFFFFFFFF, tree]).generate_state(1, np.uint64)
    return np.uint64(digest[0])


class RoundingKeys:
    """The keys of trees, made some at a time: in the midst of other work, one takes five times as long."""

    _AT_A_TIME = 16

    def __init__(self, seed: int):
        self._seed, self._first, self._keys = seed, 0, []

    def __getitem__(self, tree: int) -> np.uint64:
        if not self._first <= tree < self._first + len(self._keys):
            self._first = tree
            self._keys = [rounding_key(self._seed, tree + i) for i in range(self._AT_A_TIME)]
        return self._keys[tree - self._first]


def packed_rows(grad_bits: int, n_rows: int) -> np.ndarray:
    """Room for the grad and hess of n_rows rows (kernels.packed_rows)."""
    return np.empty(n_rows, np.int32 if grad_bits <= 16 else np.int64)


def round_gradients(grads, hesses, steps: Steps, key: np.uint64, row_offset: int) -> np.ndarray:
    """Grad and hess of each row as integers, packed: int64 (n_rows)."""
    packed = np.empty(len(grads), np.int64)
    kernels.round_gradients(grads, hesses, steps.grad, steps.hess, steps.exact, key, row_offset, packed)
    return packed


def hesses_of(packed: np.ndarray) -> np.ndarray:
    """int64: the hessians of rows that round_gradients packed."""
    return packed.astype(np.int64) & np.int64(hess_mask(packed.itemsize))
