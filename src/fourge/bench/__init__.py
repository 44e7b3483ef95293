"""Benchmarks: ratios within one run, medians of interleaved repeats, never a timed test."""
