"""The slow twin of psboost/kernels/gains.py: tries every split on the rows themselves, by the definition.

A row is a dict {feature: bin}; a feature that it does not store has its default value (a zero, or missing).
NaN is the bin `nan_bin` of the feature, where zeros are values.
"""

from dataclasses import dataclass
from itertools import pairwise


@dataclass(frozen=True)
class Rule:
    grad_step: float
    hess_step: float
    reg_lambda: float
    reg_alpha: float
    min_gain: float
    least: int


def score(grad, hess, rule):
    """T(G)^2 / (H + lambda)."""
    g = grad * rule.grad_step
    if g > rule.reg_alpha:
        g -= rule.reg_alpha
    elif g < -rule.reg_alpha:
        g += rule.reg_alpha
    else:
        g = 0.0 if rule.reg_alpha > 0 else g
    return g * g / (hess * rule.hess_step + rule.reg_lambda)


def goes_left(row, feature, bin_, default_left, zero_bin, nan_bin):
    """Whether a row goes left at the split "bin <= bin_". zero_bin None: what is not stored is missing."""
    held = row.get(feature, zero_bin)
    if held is None or held == nan_bin:
        return bool(default_left)
    return held <= bin_


def sums_of(rows, values):
    return sum(values[row][0] for row in rows), sum(values[row][1] for row in rows)


def find_split(rows, values, features, rule):
    """The best (gain, feature, bin, default_left, left sums), or None, over all splits of all features.

    features  {feature: (zero_bin or None, nan_bin or None)}, named by the user's numbers
    Of equally good splits the one of the lower feature, then with missing values on the right, then of the lower bin; or of
    the higher one, with missing values on the left. The same of bins at which the same rows with a hess go left.
    """
    everyone = range(len(rows))
    total = sums_of(everyone, values)
    best = None
    for feature, (zero_bin, nan_bin) in sorted(features.items()):
        held = {row.get(feature, zero_bin) for i, row in enumerate(rows) if values[i][1] > 0}
        bins = sorted(held - {None, nan_bin})
        up = list(pairwise([*bins, None]))
        for default_left, turns in ((0, up), (1, reversed(up))):
            for bin_, next_bin in turns:
                side = [
                    i for i in everyone if goes_left(rows[i], feature, bin_, default_left, zero_bin, nan_bin)
                ]
                grad, hess = sums_of(side, values)
                if hess < rule.least or total[1] - hess < rule.least:
                    continue
                gain = (
                    score(float(grad), float(hess), rule)
                    + score(float(total[0] - grad), float(total[1] - hess), rule)
                    - score(float(total[0]), float(total[1]), rule)
                )
                if gain > (rule.min_gain if best is None else best[0]):
                    highest = bin_ if next_bin is None else next_bin - 1
                    best = gain, feature, highest if default_left else bin_, default_left, (grad, hess)
    return best


def lives(rows, values, feature, least):
    """Whether the rows that store the feature could make a child (D3)."""
    return sum(values[i][1] for i, row in enumerate(rows) if feature in row) >= least
