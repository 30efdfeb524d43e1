"""Rows of any sources as one block or one batch, packed or padded, each column copied once."""
