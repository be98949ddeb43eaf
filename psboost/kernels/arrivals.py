"""Knows how a thread waits awake, without the interpreter's lock, until others are done; does not know with what."""

from numba.core import cgutils
from numba.extending import intrinsic, overload

from psboost.kernels.compile import OUT, int64, kernel, void

_LOOKS = 1 << 17  # some 30 microseconds: who waits for longer sleeps


def _add(counter, n):
    """Adds to counter[0], whoever else does at the same time."""
    counter[0] += n


@intrinsic
def _add_at_once(typing_context, counter, n):
    def generate(context, builder, signature, args):
        view = cgutils.create_struct_proxy(counter)(context, builder, value=args[0])
        builder.atomic_rmw("add", view.data, args[1], "seq_cst")
        return context.get_dummy_value()

    return void(counter, n), generate


@overload(_add)
def _compiled_add(counter, n):
    return lambda counter, n: _add_at_once(counter, int64(n))


def _look(counter):
    """counter[0] as it is now."""
    return counter[0]


@intrinsic
def _look_again(typing_context, counter):
    def generate(context, builder, signature, args):
        view = cgutils.create_struct_proxy(counter)(context, builder, value=args[0])
        return builder.load_atomic(view.data, "acquire", int64.bitwidth // 8)

    return int64(counter), generate


@overload(_look)
def _compiled_look(counter):
    return lambda counter: _look_again(counter)


@kernel(void(OUT[int64]))
def arrive(arrived):
    """Counts one more that is done: in arrived[0]  # OUT"""
    _add(arrived, 1)


@kernel(void(OUT[int64], int64))
def wait_awake(arrived, n):
    """Returns when n are done, or after a moment."""
    for _ in range(_LOOKS):
        if _look(arrived) >= n:
            return
