"""The result of a calibration: alpha, and the queries that it was computed from."""

import polars as pl

from desa_ray.core.calibration import calibrated_alpha
from desa_ray.pipeline.stage import Stage
from desa_ray.store.tables import read_table

SCORES = pl.Schema(
    {
        "row": pl.Int64,  # of the query
        "top_o": pl.Float64,
        "ten_o": pl.Float64,
        "top_r": pl.Float64,
        "ten_r": pl.Float64,
    }
)


def read_calibration(stage: Stage) -> tuple[float, list[int]]:
    """alpha, and the rows of the queries that it was found with."""
    (shard,) = stage.stored_shards()
    table = read_table(stage.artifact, shard.parts[0], SCORES)
    return calibrated_alpha(table.drop("row").to_numpy()), table["row"].to_list()


def calibration_rows(fusion: Stage) -> set[int]:
    """Queries by row that calibrated a channel of a fusion: they prove nothing about it."""
    channels = [source for role, source in fusion.inputs.items() if role.startswith("channel:")]
    rows: set[int] = set()
    for channel in channels:
        if "calibration" in channel.inputs:
            rows |= set(read_calibration(channel.inputs["calibration"])[1])
    return rows
