"""Knows how a thread waits awake, without the interpreter's lock, until others are done; does not know with what."""

import time

from llvmlite import ir
from numba.core import cgutils
from numba.extending import intrinsic

from psboost.kernels.atomics import add, look
from psboost.kernels.compile import OUT, inline, int64, kernel, void

_LOOKS = 1 << 17  # some 30 microseconds: who waits for longer sleeps
# At a meeting, a thread lets others have its core after so many looks, some microseconds, again and again: where there are
# more threads than cores, who is waited for may be one of them. Having done so very often, it sleeps for a moment each time.
LOOKS_AT_ONCE, _TIMES_AWAKE, _MOMENT = 1 << 14, 1 << 8, 20  # microseconds
ARRIVED, GIVEN_UP, N_MEETING = range(3)  # of a meeting (int64): how often a thread has come; whether nobody is to wait


@kernel(void(OUT[int64]))
def arrive(arrived):
    """Counts one more that is done: in arrived[0]  # OUT"""
    add(arrived, 1)


@kernel(void(OUT[int64], int64))
def wait_awake(arrived, n):
    """Returns when n are done, or after a moment."""
    for _ in range(_LOOKS):
        if look(arrived) >= n:
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
def let_others_go_on(typing_context):
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
    n_due, n_times = (add(meeting, 1) // n + 1) * n, int64(0)
    while True:
        for _ in range(LOOKS_AT_ONCE):
            if look(meeting) >= n_due:
                return True
        if look(meeting[GIVEN_UP:]) != 0:
            return False
        n_times += 1
        if n_times > _TIMES_AWAKE:
            _sleep(_MOMENT)
        else:
            let_others_go_on()
