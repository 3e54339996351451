"""What the skills of a trained run can do. The names are here, where nothing heavy is imported."""

EVALUATIONS = ("coverage", "control", "decoding", "completions")
ZERO_SHOT = "zero-shot"  # has a command of its own, and is defined where there are goals
NO_EMBEDDING = ("diayn", "dusdi")  # they have discriminators, in which a difference is no direction to a goal
DEFAULT_STEPS = {"coverage": 100_000, "decoding": 100_000}  # of the evaluations that take a number of steps
