"""Knows the ways in which a training may be distributed, by name, and the kernels each takes, not how any of them works.

    block             rows and features: servers merge sparse histograms
    allreduce         rows: dense histograms are summed in a ring, and every worker gets all sums (XGBoost's way)
    reduce-scatter    rows: likewise, but each worker gets the sums of its own range of features and searches these alone;
                      best splits are exchanged (LightGBM's way)
    sparse-allreduce  rows: as allreduce, but only present bins travel, until a chunk is so full that all bins take less
"""

from psboost.errors import ParameterError

BLOCK, ALLREDUCE, REDUCE_SCATTER, SPARSE_ALLREDUCE = "block", "allreduce", "reduce-scatter", "sparse-allreduce"
MODES = (BLOCK, ALLREDUCE, REDUCE_SCATTER, SPARSE_ALLREDUCE)


def check_grid(mode: str, grid: tuple[int, int]) -> None:
    """ParameterError if the mode distributes rows alone, and the grid features."""
    n_row_shards, n_feature_shards = grid
    if mode != BLOCK and n_feature_shards > 1:
        raise ParameterError(
            f"mode {mode} distributes rows alone: give a grid of {n_row_shards * n_feature_shards}x1, or mode {BLOCK} for "
            f"{n_row_shards}x{n_feature_shards}"
        )


def kernel_jobs(mode: str, grid: tuple[int, int]) -> tuple[str, ...]:
    """What kernels.prepare.JOBS a training takes."""
    if mode != BLOCK:
        return "train", "sum in a ring"
    if grid == (1, 1):
        return "train", "propose"
    return "train", "merge" if grid[0] > 1 else "propose", "send"
