"""Knows how several threads change and read one word at the same time; does not know what it says.

A word is the first of an array (int64); Python does the same, one thread at a time.
"""

from numba.core import cgutils
from numba.extending import intrinsic, overload

from psboost.kernels.compile import inline, int64


def _at_once(operation):
    """A helper of kernels, changed(word, value): what word[0] was before this (LLVM's atomicrmw)."""

    @intrinsic
    def change(typing_context, word, value):
        def generate(context, builder, signature, args):
            view = cgutils.create_struct_proxy(word)(context, builder, value=args[0])
            return builder.atomic_rmw(operation, view.data, args[1], "seq_cst")

        return int64(word, value), generate

    return change


_add_at_once, _swap_at_once = _at_once("add"), _at_once("xchg")


def add(counter, n):
    """Adds to counter[0], whoever else does at the same time; returns what it was."""
    counter[0] += n
    return counter[0] - n


@overload(add)
def _compiled_add(counter, n):
    return lambda counter, n: _add_at_once(counter, int64(n))


def swap(word, value):
    """Puts a value into word[0]; returns what it was. Of several that do so at the same time, each takes another's."""
    old, word[0] = word[0], value
    return old


@overload(swap)
def _compiled_swap(word, value):
    return lambda word, value: _swap_at_once(word, int64(value))


def look(counter):
    """counter[0] as it is now."""
    return counter[0]


@intrinsic
def _look_again(typing_context, counter):
    def generate(context, builder, signature, args):
        view = cgutils.create_struct_proxy(counter)(context, builder, value=args[0])
        return builder.load_atomic(view.data, "acquire", int64.bitwidth // 8)

    return int64(counter), generate


@overload(look)
def _compiled_look(counter):
    return lambda counter: _look_again(counter)


@inline
def take_turn(turns):
    """Whose turn it is: 0, 1 ..., each number once, whichever thread asks. turns[0] is how many there were  # OUT"""
    return add(turns, 1)
