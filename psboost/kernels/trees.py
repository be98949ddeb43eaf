"""Knows what the nodes of a grown tree are, given its splits, and what leaves are worth; does not know rows or features."""

from psboost.kernels.compile import IN, IN2, OUT, float32, float64, inline, int32, int64, kernel, uint8, void
from psboost.kernels.floats import FLOAT32_MAX
from psboost.kernels.splits import DEFAULT_LEFT, NODE

_MOST = float(FLOAT32_MAX)  # models are JSON, which knows no infinity; gains of huge labels are beyond it


@inline
def _narrow(x):
    return float32(min(max(x, -_MOST), _MOST))


@inline
def _leaf_value(grad, hess, reg_lambda, reg_alpha, learning_rate):
    """-T(G) / (H + lambda), T shrinking by reg_alpha (XGBoost paper, equation 5), times the learning rate."""
    value = 0.0
    if hess > 0.0:
        sign = 1.0 if grad > 0.0 else (-1.0 if grad < 0.0 else 0.0)
        value = -(sign * max(abs(grad) - reg_alpha, 0.0)) / (hess + reg_lambda)
    return _narrow(learning_rate * value)


@kernel(void(IN2[float64], float64, float64, float64, OUT[float32]))
def weigh_leaves(sums, reg_lambda, reg_alpha, learning_rate, values):
    """The value (OUT) of each leaf, of its sums of grad and hess; 0 without hess."""
    for leaf in range(len(values)):
        values[leaf] = _leaf_value(sums[leaf, 0], sums[leaf, 1], reg_lambda, reg_alpha, learning_rate)


@kernel(
    void(
        IN2[int32], IN[int64], IN[float32], IN[float64], IN2[int64], float64, float64, float64, float64, IN[float32],
        OUT[int32], OUT[int32], OUT[int64], OUT[float32], OUT[uint8], OUT[float32], OUT[float32], OUT[float32],
    )
)  # fmt: skip
def grow(
    splits, features, thresholds, gains, sums, grad_step, hess_step, reg_lambda, reg_alpha, leaf_values,
    left, right, feature, threshold, default_left, value, gain, sum_hess,
):  # fmt: skip
    """The nodes (OUT, boosting.forest.Tree) of a tree. The k-th split's children are nodes 2 k + 1 and 2 k + 2.

    splits       and features, thresholds, gains: of all levels (kernels.splits)
    sums         (n_nodes, 2): of grad and hess, in steps
    leaf_values  of the leaves, in order of node; other nodes have what their sums are worth, at a learning rate of 1
    """
    for node in range(len(left)):
        left[node], right[node], feature[node], threshold[node], default_left[node], gain[node] = -1, -1, -1, 0, 0, 0
        grad, hess = float64(sums[node, 0]) * grad_step, float64(sums[node, 1]) * hess_step
        value[node], sum_hess[node] = _leaf_value(grad, hess, reg_lambda, reg_alpha, 1.0), _narrow(hess)
    for k in range(len(splits)):
        node = splits[k, NODE]
        left[node], right[node], feature[node], threshold[node] = 2 * k + 1, 2 * k + 2, features[k], thresholds[k]
        default_left[node], gain[node] = splits[k, DEFAULT_LEFT], _narrow(gains[k])
    leaf = 0
    for node in range(len(left)):
        if left[node] < 0:
            value[node] = leaf_values[leaf]
            leaf += 1
