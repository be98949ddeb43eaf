"""Knows how margins and probabilities become each other, in XGBoost's bits."""

import math

from psboost.kernels.compile import IN, OUT, float32, kernel, void


@kernel(float32(float32))
def logit(probability):
    """In float32 throughout and through the C library's logf, so that it gives XGBoost's bits."""
    return -math.log(float32(1) / probability - float32(1))


@kernel(void(IN[float32], OUT[float32]))
def logistic(margins, probabilities):
    """`probabilities` (OUT) in float32 throughout, as XGBoost computes it; 88.7 keeps expf finite."""
    for row in range(len(margins)):
        probabilities[row] = float32(1) / (math.exp(min(-margins[row], float32(88.7))) + float32(1))
