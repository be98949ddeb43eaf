"""Knows how a thread waits awake, without the interpreter's lock, until others are done; does not know with what."""

import time

from llvmlite import ir
from numba.core import cgutils
from numba.extending import intrinsic, overload

from psboost.kernels.compile import OUT, inline, int64, kernel, void

_LOOKS = 1 << 17  # some 30 microseconds: who waits for longer sleeps
# At a meeting, a thread lets others have its core after so many looks, some microseconds, again and again: where there are
# more threads than cores, who is waited for may be one of them. Having done so very often, it sleeps for a moment each time.
_LOOKS_AT_ONCE, _TIMES_AWAKE, _MOMENT = 1 << 14, 1 << 8, 20  # microseconds
ARRIVED, GIVEN_UP, N_MEETING = range(3)  # of a meeting (int64): how often a thread has come; whether nobody is to wait
# Of a thread that is called: it sleeps; it is at its post, awake; it is called; it is to sleep. Each has POST_WORDS (int64),
# a cache line, of which the first says so.
ASLEEP, AWAKE, CALLED, DISMISSED = range(4)
POST_WORDS = 8
_STAY = 2_000_000  # nanoseconds: between two trees there is less


def _add(counter, n):
    """Adds to counter[0], whoever else does at the same time; returns what it was."""
    counter[0] += n
    return counter[0] - n


@intrinsic
def _add_at_once(typing_context, counter, n):
    def generate(context, builder, signature, args):
        view = cgutils.create_struct_proxy(counter)(context, builder, value=args[0])
        return builder.atomic_rmw("add", view.data, args[1], "seq_cst")

    return int64(counter, n), generate


@overload(_add)
def _compiled_add(counter, n):
    return lambda counter, n: _add_at_once(counter, int64(n))


def _swap(word, value):
    """Puts a value into word[0]; returns what it was. Of several that do so at the same time, each takes another's."""
    old, word[0] = word[0], value
    return old


@intrinsic
def _swap_at_once(typing_context, word, value):
    def generate(context, builder, signature, args):
        view = cgutils.create_struct_proxy(word)(context, builder, value=args[0])
        return builder.atomic_rmw("xchg", view.data, args[1], "seq_cst")

    return int64(word, value), generate


@overload(_swap)
def _compiled_swap(word, value):
    return lambda word, value: _swap_at_once(word, int64(value))


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


@inline
def take_turn(turns):
    """Whose turn it is: 0, 1 ..., each number once, whichever thread asks. turns[0] is how many there were  # OUT"""
    return _add(turns, 1)


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


@intrinsic
def _sleep(typing_context, microseconds):
    def generate(context, builder, signature, args):
        kind = ir.FunctionType(ir.IntType(32), [ir.IntType(32)])
        function = cgutils.get_or_insert_function(builder.module, kind, "usleep")
        builder.call(function, [builder.trunc(args[0], ir.IntType(32))])
        return context.get_dummy_value()

    return void(microseconds), generate


@intrinsic
def _let_others_go_on(typing_context):
    def generate(context, builder, signature, args):
        function = cgutils.get_or_insert_function(builder.module, ir.FunctionType(ir.IntType(32), []), "sched_yield")
        builder.call(function, [])
        return context.get_dummy_value()

    return void(), generate


@intrinsic
def clock(typing_context):
    """Nanoseconds (int64) since some moment, of a clock that never jumps."""

    def generate(context, builder, signature, args):
        word = ir.IntType(64)
        kind = ir.FunctionType(ir.IntType(32), [ir.IntType(32), word.as_pointer()])
        function = cgutils.get_or_insert_function(builder.module, kind, "clock_gettime")
        held = cgutils.alloca_once(builder, word, size=2)
        builder.call(function, [ir.Constant(ir.IntType(32), time.CLOCK_MONOTONIC), held])
        seconds, rest = (builder.load(builder.gep(held, [ir.Constant(ir.IntType(32), k)])) for k in range(2))
        return builder.add(builder.mul(seconds, ir.Constant(word, 1_000_000_000)), rest)

    return int64(), generate


@inline
def meet(meeting, n):
    """Returns once all n threads have come as often as this one has now; False if the meeting was given up."""
    n_due, n_times = (_add(meeting, 1) // n + 1) * n, int64(0)
    while True:
        for _ in range(_LOOKS_AT_ONCE):
            if _look(meeting) >= n_due:
                return True
        if _look(meeting[GIVEN_UP:]) != 0:
            return False
        n_times += 1
        if n_times > _TIMES_AWAKE:
            _sleep(_MOMENT)
        else:
            _let_others_go_on()


@kernel(int64(OUT[int64], int64))
def call(posts, k):
    """Calls thread k; 0 if it sleeps and is to be woken up."""
    return int64(_swap(posts[k * POST_WORDS :], CALLED) == AWAKE)


@kernel(void(OUT[int64], int64))
def dismiss(posts, k):
    """Tells thread k not to stay awake."""
    _swap(posts[k * POST_WORDS :], DISMISSED)


@inline
def come(posts, k):
    """Thread k has heard that it was called, and will hear the next call."""
    _swap(posts[k * POST_WORDS :], AWAKE)


@inline
def stay(posts, k):
    """Returns once thread k, which has come, is called; False if it is to sleep, as nobody has called for a while."""
    post, end = posts[k * POST_WORDS :], clock() + _STAY
    while clock() < end:
        for _ in range(_LOOKS_AT_ONCE):
            if _look(post) != AWAKE:
                return _look(post) == CALLED
        _let_others_go_on()
    return _swap(post, ASLEEP) == CALLED
