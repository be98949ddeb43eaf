"""Knows svmlight text; does not know files, or what becomes of its columns.

The parser reads bytes that end with a newline, so no loop asks for the end of the text. It stops at the first
thing that is wrong and returns a code and where it was; what to say about it is data/svmlight.py's business.
"""

import numpy as np

from psboost.kernels.compile import IN, OUT, float32, float64, inline, int64, kernel, types, uint8
from psboost.kernels.floats import FLOAT32_MAX

# What stopped the parser.
FINE, BAD_LABEL, NAN_LABEL, INFINITE_LABEL, BAD_PAIR, BAD_VALUE, INFINITE_VALUE = range(7)
HUGE_INDEX, LOW_INDEX, WIDE_INDEX, UNSORTED_INDEX = range(7, 11)

# What a number is. LONG: the digits do not decide, float() of the token does.
EXACT, ROUNDED, LONG, NAN, INFINITE, MALFORMED = range(6)

TAB, NEWLINE, RETURN, BLANK, HASH, PLUS, MINUS, DOT, ZERO, NINE, COLON = b"\t\n\r #+-.09:"
SMALL_A, SMALL_D, SMALL_E, SMALL_F, SMALL_I, SMALL_N, SMALL_Q, SMALL_T, SMALL_Y = b"adefinqty"

MAX_INDEX = 2**63 - 1
POWERS = np.array([float(f"1e{power}") for power in range(65)])
EXACT_POWER = 22  # 10^22 is the last power of ten that a float64 holds exactly
EXACT_MANTISSA = 2**53
MAX_MANTISSA = 10**17  # one more digit still fits an int64
DOUBT = (
    2.0**-50
)  # bounds the relative error of ROUNDED: five roundings of 2^-53, and 2^-56 for digits left out


@inline
def _ends(char):
    """Whether a token ends at `char`: a blank, the end of the line or a comment."""
    return TAB <= char <= RETURN or char in (BLANK, HASH)


@inline
def _word(text, at):
    """(end, kind) of nan, inf or infinity, in any case, at text[at]; text ends with a newline."""
    if text[at] | 32 == SMALL_N and text[at + 1] | 32 == SMALL_A and text[at + 2] | 32 == SMALL_N:
        return at + 3, NAN
    if text[at] | 32 == SMALL_I and text[at + 1] | 32 == SMALL_N and text[at + 2] | 32 == SMALL_F:
        at += 3
        if (
            text[at] | 32 == SMALL_I and text[at + 1] | 32 == SMALL_N and text[at + 2] | 32 == SMALL_I
            and text[at + 3] | 32 == SMALL_T and text[at + 4] | 32 == SMALL_Y
        ):  # fmt: skip
            at += 5
        return at, INFINITE
    return at, MALFORMED


@inline
def _number(text, at):
    """(end, value, kind) of the decimal number at text[at].

    EXACT is the float64 nearest to the decimal (one rounding, as both operands are exact), ROUNDED is within
    DOUBT of it.
    """
    negative = text[at] == MINUS
    if negative or text[at] == PLUS:
        at += 1
    mantissa = 0
    scale = 0
    whole = True
    begin = at
    char = text[at]
    while ZERO <= char <= NINE:
        if mantissa < MAX_MANTISSA:
            mantissa = mantissa * 10 + (char - ZERO)
        else:
            whole = False
            scale += 1
        at += 1
        char = text[at]
    n_digits = at - begin
    if char == DOT:
        at += 1
        begin = at
        char = text[at]
        while ZERO <= char <= NINE:
            if mantissa < MAX_MANTISSA:
                mantissa = mantissa * 10 + (char - ZERO)
                scale -= 1
            else:
                whole = False
            at += 1
            char = text[at]
        n_digits += at - begin
        if n_digits == 0:
            return at, 0.0, MALFORMED
    elif n_digits == 0:
        end, kind = _word(text, at)
        return end, 0.0, kind
    if char | 32 == SMALL_E:
        at += 1
        minus = text[at] == MINUS
        if minus or text[at] == PLUS:
            at += 1
        begin = at
        exponent = 0
        while ZERO <= text[at] <= NINE:
            if exponent < 10**15:
                exponent = exponent * 10 + (text[at] - ZERO)
            at += 1
        if at == begin:
            return at, 0.0, MALFORMED
        scale += -exponent if minus else exponent

    value = float(-mantissa if negative else mantissa)
    if mantissa == 0:
        return at, 0.0, EXACT
    if scale < -64 or scale > 64:
        return at, value, LONG
    kind = EXACT if whole and mantissa <= EXACT_MANTISSA and -EXACT_POWER <= scale <= EXACT_POWER else ROUNDED
    if scale < 0:
        value /= POWERS[-scale]
    elif scale > 0:
        value *= POWERS[scale]
    return at, value, kind


@inline
def _qid(text, at):
    """End of the token qid:N at text[at], or `at` if there is none."""
    if text[at] != SMALL_Q or text[at + 1] != SMALL_I or text[at + 2] != SMALL_D or text[at + 3] != COLON:
        return at
    end = at + 4
    if text[end] == MINUS:
        end += 1
    digits = end
    while ZERO <= text[end] <= NINE:
        end += 1
    return end if end > digits and _ends(text[end]) else at


@kernel(
    types.UniTuple(int64, 7)(
        IN[uint8], int64, int64, OUT[int64], OUT[int64], OUT[float32], OUT[float64], OUT[int64]
    )
)  # fmt: skip
def parse(text, index_base, last_column, indptr, features, values, labels, long_numbers):
    """(n_rows, n_values, max_column, n_long, code, at, previous): the lines of `text` as CSR.

    text          uint8 (n): whole lines, the last byte is a newline
    last_column   columns beyond it are an error
    indptr        # OUT int64 (n // 2 + 2), a row takes 2 bytes or more
    features      # OUT int64 (n // 4 + 1), a pair takes 4 bytes or more; zero-based columns
    values        # OUT float32 (n // 4 + 1), zeros and NaN included
    labels        # OUT float64 (n // 2 + 1)
    long_numbers  # OUT int64 (2 * (n // 4 + 1)): (slot, where it starts) of numbers that float() has to
                  settle; slot is a position in values, or -1 - row for a label
    max_column is -1 if there is none. If code is not FINE, text[at] is what is wrong, and `previous` the
    index before it.
    """
    n = len(text)
    at = 0
    n_rows = 0
    n_values = 0
    n_long = 0
    max_column = -1
    previous = -1
    code = FINE
    indptr[0] = 0
    while at < n:
        char = text[at]
        while char == BLANK or (TAB <= char <= RETURN and char != NEWLINE):
            at += 1
            char = text[at]
        if char == HASH:
            while text[at] != NEWLINE:
                at += 1
            char = NEWLINE
        if char == NEWLINE:
            at += 1
            continue

        begin = at
        at, label, kind = _number(text, at)
        if kind == MALFORMED or not _ends(text[at]):
            code = BAD_LABEL
        elif kind == NAN:
            code = NAN_LABEL
        elif kind == INFINITE:
            code = INFINITE_LABEL
        elif kind != EXACT:
            long_numbers[2 * n_long] = -1 - n_rows
            long_numbers[2 * n_long + 1] = begin
            n_long += 1
        if code != FINE:
            at = begin
            break
        labels[n_rows] = label

        previous = -1
        while True:
            char = text[at]
            while char == BLANK or (TAB <= char <= RETURN and char != NEWLINE):
                at += 1
                char = text[at]
            begin = at
            index = 0
            while ZERO <= char <= NINE:
                digit = char - ZERO
                if index >= MAX_INDEX // 10 and (index > MAX_INDEX // 10 or digit > 7):
                    code = HUGE_INDEX
                    break
                index = index * 10 + digit
                at += 1
                char = text[at]
            if at == begin:
                if char == HASH:
                    while text[at] != NEWLINE:
                        at += 1
                    char = NEWLINE
                if char == NEWLINE:
                    break
                at = _qid(text, at)
                if at > begin:
                    continue
                code = BAD_PAIR
            elif char != COLON and code == FINE:
                code = BAD_PAIR
            if code != FINE:
                break
            if index < index_base:
                code = LOW_INDEX
            elif index <= previous:
                code = UNSORTED_INDEX
            elif index - index_base > last_column:
                code = WIDE_INDEX
            if code != FINE:
                break
            previous = index
            at += 1
            char = text[at]
            if ZERO <= char <= NINE and text[at + 1] == BLANK:
                # one digit: most values of one-hot data
                value = np.float32(char - ZERO)
                at += 1
            else:
                value_begin = at
                at, number, kind = _number(text, at)
                value = np.float32(number)
                if kind == MALFORMED or not _ends(text[at]):
                    code = BAD_VALUE
                elif kind == NAN:
                    value = np.float32(np.nan)
                else:
                    if kind != EXACT and (
                        kind == LONG or np.float32(number * (1 - DOUBT)) != np.float32(number * (1 + DOUBT))
                    ):
                        long_numbers[2 * n_long] = n_values
                        long_numbers[2 * n_long + 1] = value_begin
                        n_long += 1
                    elif kind == INFINITE or abs(value) >= FLOAT32_MAX:
                        code = INFINITE_VALUE
                if code != FINE:
                    begin = value_begin
                    break
            features[n_values] = index - index_base
            values[n_values] = value
            n_values += 1
        if code != FINE:
            at = begin
            break
        if previous - index_base > max_column:
            max_column = previous - index_base
        n_rows += 1
        indptr[n_rows] = n_values
        at += 1
    return n_rows, n_values, max_column, n_long, code, at, previous
