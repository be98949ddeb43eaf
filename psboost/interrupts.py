"""Knows how Ctrl-C is put off; does not know what for."""

import os
import signal
from contextlib import contextmanager


@contextmanager
def interrupts_wait():
    """Inside, Ctrl-C and its like are put off: what they raise would be lost where LLVM calls Python back, and now and then
    while modules are imported."""
    came: list[int] = []
    interrupt: BaseException | None = None
    signals = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    handlers = {number: handler for number in signals if callable(handler := signal.getsignal(number))}
    try:
        for number in handlers:
            signal.signal(number, lambda number, frame: came.append(number))
    except ValueError:  # not the main thread, which is the one that handles signals
        yield
        return
    try:
        yield
    finally:
        restored: set[int] = set()
        while restored != handlers.keys():
            try:  # one that is back may be called before the others are
                for number in handlers.keys() - restored:
                    signal.signal(number, handlers[number])
                    restored.add(number)
            except BaseException as error:
                interrupt = error
        for number in came:
            os.kill(os.getpid(), number)
        if interrupt is not None:
            raise interrupt
