"""Knows the ways in which a training may be distributed, by name; does not know how any of them works.

    block             rows and features: servers merge sparse histograms
    allreduce         rows: dense histograms are summed in a ring, and every worker gets all sums (XGBoost's way)
"""

BLOCK, ALLREDUCE = "block", "allreduce"
MODES = (BLOCK, ALLREDUCE)
