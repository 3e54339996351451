"""Tools around a run: checks, benchmarks, diagnostics."""
