"""Batches for training: which rows they have, in which order, for which rank; and threads that read them ahead."""
