"""Suites of runs, the table of their results, statistics, and the report."""
