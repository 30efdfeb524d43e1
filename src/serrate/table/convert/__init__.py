"""Tables from and to other formats: Arrow, Parquet, Awkward, pandas, polars, Hugging Face datasets, .nrt files."""

from __future__ import annotations

from serrate.table.convert.huggingface import dataset_to_folder
from serrate.table.convert.parquet import parquet_to_folder

__all__ = ["dataset_to_folder", "parquet_to_folder"]
