"""Knows losses: bounds of gradients, intercepts and links; does not know trees, nor how gradients are computed.

A margin is the raw score (float32), before the link. Labels are float64, until a loss has checked them and holds them in a
type of its own, by which kernels.gradients knows it.

    bounded  whether |grad| and hess are at most the row's weight
    variant  which kernels are for it (kernels.prepare.VARIANTS)
    dtype    of gradients, and of the weights that they are computed with: float32 if bounded
"""

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from psboost.errors import DataError
from psboost.kernels.floats import FLOAT32_MAX

FLOAT_MAX = float(FLOAT32_MAX)
_LAST_PLACE, _NEAR = 2.0**-24, 2.0**-14


@dataclass(frozen=True)
class Bounds:
    """The largest |grad| and hess that any row can have."""

    grad: float
    hess: float


class Logistic:
    """binary:logistic. Labels 0 (or -1) and 1; |grad| <= w and hess <= w / 4."""

    name, variant = "binary:logistic", "logistic loss"
    bounded, dtype = True, np.float32

    def check_labels(self, labels: np.ndarray, place: Callable[[int], str]) -> np.ndarray:
        """Labels as 0 and 1, uint8 (-1 counts as 0). DataError names the place of the first row with another label."""
        known = (labels == 0) | (labels == 1) | (labels == -1)
        if not known.all():
            row = int(np.argmin(known))
            raise DataError(
                f"{place(row)}: label {labels[row]:g}: {self.name} wants 0 (or -1) and 1; "
                "map the labels, or use objective=reg:squarederror"
            )
        return (labels > 0).view(np.uint8)

    def bounds(self, max_weight: float, max_label: float) -> Bounds:  # noqa: ARG002
        return Bounds(max_weight, 0.25 * max_weight)

    def intercept(self, sum_grad: float, sum_hess: float) -> float:
        """base_score (a probability): the weighted mean label, from the sums at margin 0 (grad = 1/2 - y, hess = 1/4)."""
        mean = 0.5 - sum_grad / (4.0 * sum_hess) if sum_hess > 0 else 0.5
        return float(np.float32(min(max(mean, 1e-6), 1.0 - 1e-6)))

    def exact_steps(self, base_score: float, most: int) -> tuple[float, float] | None:
        """Steps of grad and hess of which each row of weight 1 has a whole number, `most` at most, where all margins are
        base_score's; None if there are none. There grad is p or p - 1, and hess p (1 - p): with p = k / n, k or k - n
        steps of 1 / n, and one step.

        k / n must be p to float32's last place. Gains hardly notice: if all rows have the same hess h, d more of grad for
        each changes them by reg_lambda d / h or so, and not at all without reg_lambda.
        """
        p, hess = Fraction(base_score), base_score * (1.0 - base_score)
        share = p.limit_denominator(most)
        if abs(share - p) > min(_LAST_PLACE, _NEAR * hess):
            return None
        return 1.0 / share.denominator, hess


class SquaredError:
    """reg:squarederror. Any finite labels; hess = w; grad has no bound, so each tree opens with its maximum."""

    name, variant = "reg:squarederror", "squared error"
    bounded, dtype = False, np.float64

    def check_labels(self, labels: np.ndarray, place: Callable[[int], str]) -> np.ndarray:
        """The labels. DataError names the first row whose label float32, and so a margin, cannot hold."""
        held = np.abs(labels) <= FLOAT_MAX
        if not held.all():
            row = int(np.argmin(held))
            raise DataError(
                f"{place(row)}: label {labels[row]:g}: {self.name} wants labels within +-{FLOAT_MAX:g}; scale them"
            )
        return labels

    def bounds(self, max_weight: float, max_label: float) -> Bounds:
        """The bounds at margin 0."""
        return Bounds(max_weight * max_label, max_weight)

    def intercept(self, sum_grad: float, sum_hess: float) -> float:
        """base_score: the weighted mean label, from the sums at margin 0."""
        return float(np.float32(-sum_grad / sum_hess)) if sum_hess > 0 else 0.0

    def exact_steps(self, base_score: float, most: int) -> None:  # noqa: ARG002
        """None: labels are any numbers."""


LOSSES = {loss.name: loss for loss in (Logistic(), SquaredError())}
