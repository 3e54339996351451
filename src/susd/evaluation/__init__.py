"""What the skills of a trained run can do. The names are here, where nothing heavy is imported."""

EVALUATIONS = ("coverage", "control", "decoding", "completions")
DEFAULT_STEPS = {"coverage": 100_000, "decoding": 100_000}  # of the evaluations that take a number of steps
