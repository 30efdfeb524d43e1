"""Batches for training: which rows, in which order, by which rank, and reading them ahead."""
