"""SUSD and METRA in Multi-Particle: discover skills, evaluate them, learn a task over them, and report all of it."""

import sys

import susd

given = dict(word.split("=") for word in sys.argv[1:])  # such as epochs=50, or task.episodes=200 for the downstream task
options = {name: int(value) for name, value in given.items() if not name.startswith("task.")}
task_options = {name.removeprefix("task."): int(value) for name, value in given.items() if name.startswith("task.")}

runs = []
for method, skill_dim in (("susd", 2), ("metra", 20)):  # skills of 20 dimensions: SUSD has 2 for each of 10 factors
    run = susd.train("multi_particle", method=method, skill_dim=skill_dim, **options)
    susd.evaluate(run, "coverage", steps=20_000)
    susd.evaluate(run, "control")
    result = susd.downstream(run, "seq-easy", **task_options)
    print(f"{method}: discounted return {result['final']['discounted'][0]:.1f} of {result['bound']['discounted']:.1f}")
    runs.append(run)

print("the comparison is in", susd.report(runs, "comparison"))
