"""Knows which signals end a process in order, and with what exit code; does not know what has to be tidied up."""

import signal
from contextlib import contextmanager


class Interrupted(KeyboardInterrupt):
    """SIGTERM or SIGHUP came: this process is to tidy up and end, as after Ctrl-C."""

    def __init__(self, number: int):
        super().__init__(signal.Signals(number).name)
        self.number = number


@contextmanager
def signals_as_interrupt():
    """Inside, SIGTERM and SIGHUP raise Interrupted, so that what this process started is ended too.

    Handlers that somebody set are left alone, and so is an ignored SIGHUP (nohup).
    """

    def interrupt(number, frame):
        raise Interrupted(number)

    replaced = [
        number for number in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(number) is signal.SIG_DFL
    ]
    try:
        for number in replaced:
            signal.signal(number, interrupt)
    except ValueError:  # not the main thread: whoever runs that one handles signals
        yield
        return
    try:
        yield
    finally:
        for number in replaced:
            signal.signal(number, signal.SIG_DFL)


def exit_code(interrupt: KeyboardInterrupt) -> int:
    """130 after Ctrl-C, 143 after SIGTERM, 129 after SIGHUP: what a shell expects."""
    return 128 + getattr(interrupt, "number", signal.SIGINT)
