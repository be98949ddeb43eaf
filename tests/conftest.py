"""Tests find all kernels compiled, and see the signals of a program in a terminal; knows nothing of what they test."""

import signal

from psboost.kernels.prepare import JOBS, SELDOM, prepare

# Ignored in what a script starts in the background, and so in all that this process starts: psboost honours that.
signal.signal(signal.SIGINT, signal.default_int_handler)

prepare(*JOBS, variants=[(), SELDOM], say=None)
