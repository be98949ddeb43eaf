"""Kernels are imported, and an interrupt meanwhile is not lost."""

import ctypes
import os
import signal
import threading

import pytest

from psboost.kernels.compile import Claims, int64, kernel
from psboost.kernels.prepare import _interrupts_wait


def in_callback(action):
    """Calls `action` from C, which drops what it raises."""
    ctypes.CFUNCTYPE(None)(action)()


def test_an_interrupt_in_a_callback_comes_afterwards():
    done = []
    with pytest.raises(KeyboardInterrupt), _interrupts_wait():
        in_callback(lambda: os.kill(os.getpid(), signal.SIGINT))
        done.append("the rest")
    assert done == ["the rest"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_other_threads_have_none():
    failures = []

    def wait():
        try:
            with _interrupts_wait():
                pass
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    thread.join()
    assert not failures


def test_a_kernel_is_compiled_by_who_claims_it_first(tmp_path):
    def twice(x):
        return 2 * x

    kernels = []
    for _ in range(2):
        with Claims(tmp_path) as claims:
            kernels.append(kernel([int64(int64)])(twice))
    first, second = kernels
    assert len(first.signatures) == 1 and not second.signatures
    claims.compile_left()
    assert second.signatures == first.signatures and first(4) == second(4) == 8
    assert kernel(int64(int64))(twice).signatures == first.signatures
