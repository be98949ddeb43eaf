"""Starts several members from one process that has loaded everything once; does not know what members do.

    parent (cluster/processes.py)         nursery                         member
    psboost members --watched ...  ---->  loads, then forks  ---------->  as psboost server, psboost worker
                                          waits for all
    <-- "worker 3 <pid> <code>" when one has ended --
    closes its end, or dies  ---------->  ends all of them  ---SIGTERM, 2 s later SIGKILL-->
"""

import gc
import os
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable

_TICK_SECONDS = 0.05
_FAREWELL_SECONDS = 2.0
_SIGNALS = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}


def run_members(members: list[tuple[str, int]], play: Callable[[str, int], int], *, watched: bool) -> int:
    """Forks one process for each (role, rank), which runs `play(role, rank)` for its exit code, and waits for all.

    watched  end them as soon as stdin ends, and write a line to stdout for each that has ended

    Returns 0 if all returned 0, else the first other code. Call it from a process without threads.
    """
    gc.freeze()  # what is loaded stays shared between the processes
    alive: dict[int, tuple[str, int]] = {}
    first_failure = 0
    try:
        for role, rank in members:
            signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)  # no handler may run in the child before its try
            pid = os.fork()
            if pid == 0:
                _become_member(role, rank, play, watched)
            alive[pid] = (role, rank)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
        while alive:
            if watched and select.select([0], [], [], _TICK_SECONDS)[0]:
                break  # nothing is ever written to it: this is its end
            if not watched:
                time.sleep(_TICK_SECONDS)
            for role, rank, pid, code in _ended(alive):
                first_failure = first_failure or (code if code >= 0 else 128 - code)
                if watched:
                    print(role, rank, pid, code, flush=True)
    finally:
        _end(alive)
    return first_failure


def _become_member(role: str, rank: int, play: Callable[[str, int], int], watched: bool) -> None:
    """The rest of a member's life; does not return."""
    code = 1
    try:
        if watched:
            nowhere = os.open(os.devnull, os.O_RDWR)
            os.dup2(nowhere, 0)
            os.dup2(nowhere, 1)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
        code = play(role, rank)
    except KeyboardInterrupt:
        code = 130
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _ended(alive: dict[int, tuple[str, int]]) -> list[tuple[str, int, int, int]]:
    """(role, rank, pid, exit code, or minus the signal) of those that have ended; takes them out of `alive`."""
    ended = []
    for pid in list(alive):
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            ended.append((*alive.pop(pid), pid, os.waitstatus_to_exitcode(status)))
    return ended


def _end(alive: dict[int, tuple[str, int]]) -> None:
    """Ends those that are left, with SIGKILL if need be, whatever signals come."""
    signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    for number, seconds in ((signal.SIGTERM, _FAREWELL_SECONDS), (signal.SIGKILL, _FAREWELL_SECONDS)):
        for pid in alive:
            os.kill(pid, number)
        deadline = time.monotonic() + seconds
        while alive and time.monotonic() < deadline:
            _ended(alive)
            time.sleep(_TICK_SECONDS / 5)
