"""Passes: each file makes a Program of a Program, and is named as the pass is."""
