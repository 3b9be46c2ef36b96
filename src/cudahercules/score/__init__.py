"""Scores: each metric is defined once, in :mod:`cudahercules.score.metrics`, with its denominator."""
