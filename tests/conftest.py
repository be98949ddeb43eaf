"""Tests see the signals of a program that somebody started in a terminal; knows nothing of what they test."""

import signal

# Ignored in what a script starts in the background, and so in all that this process starts: psboost honours that.
signal.signal(signal.SIGINT, signal.default_int_handler)
