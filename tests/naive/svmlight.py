"""Knows what psboost/kernels/svmlight.py computes, in the slowest, plainest form; does not know numba.

Columns and values are Python lists; numbers are what float() and a regular expression make of them.
"""

import re

import numpy as np

from psboost.kernels import svmlight as kernels

_NUMBER = re.compile(rb"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|[+-]?(nan|inf|infinity)", re.IGNORECASE)
_QID = re.compile(rb"qid:-?\d+")
_PAIR = re.compile(rb"(\d+):(.*)", re.DOTALL)


def parse(text: bytes, index_base=1, n_features=2**63):
    """(rows, code, at): rows (label, columns, values) up to the error; values are float32, with 0 and NaN."""
    rows = []
    line_begin = 0
    for line in text.split(b"\n"):
        tokens = [(m.start() + line_begin, m.group()) for m in re.finditer(rb"\S+", line.partition(b"#")[0])]
        line_begin += len(line) + 1
        if not tokens:
            continue
        at, token = tokens[0]
        if not _NUMBER.fullmatch(token):
            return rows, kernels.BAD_LABEL, at
        label = float(token)
        if np.isnan(label):
            return rows, kernels.NAN_LABEL, at
        if np.isinf(label):
            return rows, kernels.INFINITE_LABEL, at
        columns, values = [], []
        for at, token in tokens[1:]:
            if _QID.fullmatch(token):
                continue
            pair = _PAIR.fullmatch(token)
            digits = re.match(rb"\d*", token).group()
            if digits and int(digits) > 2**63 - 1:
                return rows, kernels.HUGE_INDEX, at
            if not pair:
                return rows, kernels.BAD_PAIR, at
            index = int(pair.group(1))
            if index < index_base:
                return rows, kernels.LOW_INDEX, at
            if columns and index - index_base <= columns[-1]:
                return rows, kernels.UNSORTED_INDEX, at
            if index - index_base >= n_features:
                return rows, kernels.WIDE_INDEX, at
            at += len(pair.group(1)) + 1
            if not _NUMBER.fullmatch(pair.group(2)):
                return rows, kernels.BAD_VALUE, at
            with np.errstate(over="ignore", under="ignore"):
                value = np.float32(float(pair.group(2)))
            if abs(value) >= kernels.FLOAT32_MAX:
                return rows, kernels.INFINITE_VALUE, at
            columns.append(index - index_base)
            values.append(value)
        rows.append((label, columns, values))
    return rows, kernels.FINE, len(text)
