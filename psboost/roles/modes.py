"""Knows the ways in which a training may be distributed, by name, and the kernels each takes, not how any of them works.

    block             rows and features: servers merge sparse histograms
    allreduce         rows: dense histograms are summed in a ring, and every worker gets all sums (XGBoost's way)
    reduce-scatter    rows: likewise, but each worker gets the sums of its own range of features and searches these alone;
                      best splits are exchanged (LightGBM's way)
    sparse-allreduce  rows: as allreduce, but only present bins travel, until a chunk is so full that all bins take less
"""

BLOCK, ALLREDUCE, REDUCE_SCATTER, SPARSE_ALLREDUCE = "block", "allreduce", "reduce-scatter", "sparse-allreduce"
MODES = (BLOCK, ALLREDUCE, REDUCE_SCATTER, SPARSE_ALLREDUCE)


def kernel_jobs(mode: str, grid: tuple[int, int]) -> tuple[str, ...]:
    """What kernels.prepare.JOBS a training takes."""
    if mode != BLOCK:
        return "train", "sum in a ring"
    if grid == (1, 1):
        return "train", "propose"
    return "train", "merge" if grid[0] > 1 else "propose", "send"
