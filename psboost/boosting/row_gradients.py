"""Knows the gradients of a shard's training rows, which follow from its margins when they are needed; no messages."""

import math
from collections.abc import Callable, Iterable

import numpy as np

from psboost.boosting.fixed_point import Steps, packed_rows, power_above
from psboost.boosting.partition import chunks_of, join_sums
from psboost.kernels import node_builds
from psboost.kernels import row_gradients as kernels
from psboost.kernels.gradients import SUMS_OF_NODE

_NO_NODES, _NO_VALUES = np.empty(0, np.uint8), np.empty(0, np.float32)
_LEAST_PARTS = 1e17  # of the least number above 0: such a weight surely leaves a hess above 0


class RowGradients:
    """Gradients of the rows that come first of `margins`: they are never held, but for their packed form.

    packed  int32 or int64 (n_rows): what histograms add up (kernels.packed_rows), once `round` was called

    A bounded loss's are computed in float32, as XGBoost's are, in units of the greatest weight, made a power of two.
    """

    def __init__(
        self, loss, margins: np.ndarray, labels: np.ndarray, weights: np.ndarray, max_weight: float, n_rows: int,
        grad_bits: int, n_threads: int, side_by_side: Callable[..., Iterable],
    ):  # fmt: skip
        """margins float32, of these rows and maybe others; labels as the loss holds them; weights float64, a single one for
        all rows, none above max_weight."""
        self.packed = packed_rows(grad_bits, n_rows)
        self._unit = math.ldexp(1.0, power_above(max_weight)) if loss.bounded else 1.0
        self._loss, self._margins, self._labels = loss, margins[:n_rows], labels[:n_rows]
        self._weights = (weights if self._unit == 1.0 else weights / self._unit).astype(loss.dtype, copy=False)
        self._n_threads, self._side_by_side = len(chunks_of(n_rows, n_threads)), side_by_side
        self._due: tuple[np.ndarray, np.ndarray] | None = None  # nodes, and their values

    def move(self, node_of_row: np.ndarray, values: np.ndarray) -> None:
        """Adds values[node_of_row] (float32) to the margins, in the same go as gradients are next asked for. Neither array
        may change before.
        """
        self._due = node_of_row, values

    @property
    def all_have_hess(self) -> bool:
        """Whether every row's hess is above 0, whatever its margin: so a bin of rows is present in each tree's root."""
        return bool(self._weights.min(initial=1.0) >= _LEAST_PARTS * np.finfo(self._weights.dtype).tiny)

    def maxima(self) -> tuple[float, float]:
        """The largest |grad| and hess."""

        def largest(*of_rows) -> np.ndarray:
            maxima = np.zeros(2, self._loss.dtype)
            kernels.maxima_by_pieces(*of_rows, maxima)
            return maxima.astype(np.float64)

        grad, hess = np.max(self._in_threads(largest), axis=0).tolist()
        return grad * self._unit, hess * self._unit

    @property
    def variant(self) -> tuple[str, str]:
        """Which kernels are for gradients so wide, and of this loss (kernels.prepare.VARIANTS)."""
        return "16 bits" if self.packed.dtype == np.int32 else "32 bits", self._loss.variant

    def round(self, steps: Steps, key: np.uint64, row_offset: int) -> np.ndarray:
        """Fills `packed`; the first row is row `row_offset` of all row shards'. Returns what they come to: int64
        (1, kernels.node_builds.N_SUMS)."""
        steps = self.in_units(steps)

        def write(*of_rows) -> np.ndarray:
            sums = np.zeros((1, node_builds.N_SUMS), np.int64)
            kernels.round_by_pieces(
                *of_rows, steps.grad, steps.hess, steps.exact, key, row_offset, self.packed, sums[0]
            )
            return sums

        return join_sums(self._in_threads(write))

    def sum_by_node(self, node_of_row: np.ndarray, n_nodes: int, steps: Steps) -> np.ndarray:
        """int64 (n_nodes, 2): grads and hesses of each node's rows, in leaf steps."""
        steps = self.in_units(steps)

        def add_up(*of_rows) -> np.ndarray:
            sums = np.zeros(n_nodes * SUMS_OF_NODE, np.int64)
            kernels.sum_by_pieces(*of_rows, node_of_row, steps.leaf_grad, steps.leaf_hess, sums)
            return sums.reshape(n_nodes, -1, 2).sum(axis=1)

        return sum(self._in_threads(add_up, node_of_row))

    @property
    def held(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Margins, labels and weights of the rows, as kernels take them."""
        return self._margins, self._labels, self._weights

    def take_due(self, values: np.ndarray) -> int:
        """Writes the values that are due (`move`) to `values`, and returns how many these are: whoever takes them moves the
        margins."""
        if self._due is None:
            return 0
        _, due = self._due
        self._due, values[: len(due)] = None, due
        return len(due)

    def in_units(self, steps: Steps) -> Steps:
        """These steps, as the gradients of pieces are held."""
        unit = self._unit
        return Steps(
            steps.grad / unit, steps.hess / unit, steps.leaf_grad / unit, steps.leaf_hess / unit, steps.exact
        )

    def _in_threads(self, function: Callable[..., np.ndarray], nodes: np.ndarray = _NO_NODES) -> list[np.ndarray]:
        """What `function` makes, in each thread, of those pieces that it takes of all rows: its arguments are what kernels
        take first of these. `nodes` stands for those that are due, where none are."""
        due_nodes, values = (nodes, _NO_VALUES) if self._due is None else self._due
        of_rows = self._margins, self._labels, self._weights, due_nodes, values, np.zeros(1, np.int64)
        results = list(self._side_by_side(lambda thread: function(*of_rows), range(self._n_threads)))
        self._due = None
        return results
