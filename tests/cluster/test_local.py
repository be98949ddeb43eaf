"""Roles in threads of one process end together."""

import signal
import subprocess
import sys
import time

import pytest

from tests.cluster.command import PATIENCE, environment

PROGRAM = """
import numpy as np, psboost, signal
signal.signal(signal.SIGINT, signal.default_int_handler)
X = np.random.default_rng(0).normal(size=(200, 8))
started = lambda round_: print("started", flush=True) if round_.number == 0 else None
try:
    psboost.train({"max_depth": 3}, X, X[:, 0] > 0, num_boost_round=10**6, grid=(2, 2), servers=2, callbacks=[started])
except KeyboardInterrupt:
    print("interrupted")
"""


@pytest.mark.parametrize("seconds", [0.001, 0.01, 0.1])
def test_a_second_interrupt_while_the_others_end(seconds):
    """It used to close sockets that other threads were inside of, which ended the process."""
    process = subprocess.Popen([sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, text=True, env=environment())
    try:
        assert process.stdout.readline() == "started\n"
        process.send_signal(signal.SIGINT)
        time.sleep(seconds)
        process.send_signal(signal.SIGINT)
        process.wait(PATIENCE)
    finally:
        process.kill()
        process.communicate()
    assert process.returncode in (0, 130, -signal.SIGINT), "not by a signal of its own"
