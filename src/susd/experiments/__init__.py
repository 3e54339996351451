"""Suites of runs, the facts that runs leave, and their statistics."""
