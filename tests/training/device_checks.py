"""What four simulated devices compute, compared with one; test_devices.py runs it, since JAX counts its devices once.

Prints one JSON object.
"""

import json
import logging
import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np

import susd
from susd.config import configure
from susd.errors import UserError
from susd.runs import checkpoint
from susd.training import devices
from susd.training.compiler import use_compilation_cache
from susd.training.devices import find_devices, two_cores
from susd.training.resources import describe_devices
from susd.training.trainer import Trainer, TrainState

SIZES: dict[str, Any] = {"horizon": 5, "episodes": 4, "batch_size": 16, "buffer_size": 60, "gradient_steps": 10}
WIDTHS: dict[str, Any] = {"hidden": 16, "phi_hidden": 16, "density_hidden": 16, "warmup": 20, "seed": 3}
TINY = SIZES | WIDTHS
EPOCHS = 4  # the replay buffer holds three
PIPELINES: dict[str, dict[str, Any]] = {
    "stages of five": {},
    "stages of one": {"gradient_steps": 7, "relabel": True, "actor_every": 2},
}


def host(tree: Any) -> Any:
    return jax.tree.map(np.array, tree)


def run(trainer: Trainer, epochs: int) -> tuple[list[TrainState], list[dict[str, np.ndarray]]]:
    """The states after each epoch and what was logged."""
    state, states, infos = trainer.start(), [], []
    for epoch in range(epochs):
        old = state
        state, info = trainer.run_epoch(state, epoch)
        assert all(leaf.is_deleted() for leaf in jax.tree.leaves(old)), "the state was not donated"
        states.append(host(state))
        infos.append(host(info))
    return states, infos


def distance(a: Any, b: Any) -> float:
    pairs = zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    return max(float(np.abs(np.asarray(x, float) - np.asarray(y, float)).max()) for x, y in pairs)


def leaves(state: TrainState) -> list[Any]:
    return [state.learner, state.replay.data, state.replay.position, state.replay.size, state.key]


def rows() -> dict[str, Any]:
    """One run on 2 and 4 devices."""
    config, found = configure("gunner", **TINY), {}
    one, logged = run(Trainer.build(config), EPOCHS)
    for count in (2, 4):
        trainer = Trainer.build(config, devices=find_devices(count))
        states, infos = run(trainer, EPOCHS)
        found[str(count)] = {
            "states": [max(map(distance, leaves(a), leaves(b))) for a, b in zip(one, states, strict=True)],
            "infos": [distance(a, b) for a, b in zip(logged, infos, strict=True)],
            "split": sorted({str(x.sharding.spec) for x in trainer.start().replay.data}),
            "text": describe_devices(trainer),
        }
    return found


def pipelines(folder: Path) -> dict[str, Any]:
    """Two cores as a pipeline, compared with one: states, what is logged, and a run that is resumed on one core."""
    found: dict[str, Any] = {}
    devices.usable_cores = lambda: 2  # also where there is one
    for name, changes in PIPELINES.items():
        config = configure("gunner", **TINY | changes)
        one, logged = run(Trainer.build(config), 2)
        trainer = Trainer.build(config, devices=two_cores())
        both, infos = run(trainer, 2)
        states = [max(map(distance, leaves(a), leaves(b))) for a, b in zip(one, both, strict=True)]
        found[name] = {
            "states": states,
            "infos": [distance(a, b) for a, b in zip(logged, infos, strict=True)],
            "learned": distance(one[0].learner.params, one[1].learner.params),
            "text": describe_devices(trainer),
        }
    options = TINY | {"quiet": True, "eval_every": 2, "checkpoint_every": 2}
    mixed = susd.train("gunner", run=folder / "two-cores", epochs=2, **options)
    susd.train(run=mixed, resume=True, devices=1, epochs=4, quiet=True)
    like = Trainer.build(configure("gunner", **TINY)).shapes
    states = [checkpoint.restore_latest(path / "checkpoints", like)[0] for path in (mixed, folder / "whole")]
    return found | {"resumed": max(map(distance, *map(leaves, states)))}


def seeds() -> dict[str, Any]:
    """Four seeds on 4 devices are runs of their own; on 2 devices they are batched in pairs."""
    sizes = TINY | {"gradient_steps": 2}

    def last(seed: int, seeds: int, count: int = 1) -> TrainState:
        config = configure("gunner", **sizes | {"seed": seed, "seeds": seeds})
        return run(Trainer.build(config, devices=find_devices(count)), 2)[0][-1]

    def alone(index: int) -> float:
        one = jax.tree.map(lambda x: x[index : index + 1], four)
        return max(map(distance, leaves(one), leaves(last(3 + index, 1))))

    four = last(3, 4, 4)
    return {"alone": [alone(0), alone(3)], "pairs": max(map(distance, leaves(last(3, 4, 2)), leaves(four)))}


def resumed(folder: Path) -> dict[str, Any]:
    """Two epochs on 2 devices and two on 4, compared with four on one; and what a run prints."""
    options = TINY | {"quiet": True, "eval_every": 2, "checkpoint_every": 2}
    mixed = susd.train("gunner", run=folder / "mixed", devices=2, epochs=2, **options)
    hashes = [checkpoint.inspect(path)["config"] for path in checkpoint.checkpoints(mixed / "checkpoints")[:1]]
    susd.train(run=mixed, resume=True, devices="all", epochs=4, quiet=True)
    whole = susd.train("gunner", run=folder / "whole", devices=1, epochs=4, **options)
    like = Trainer.build(configure("gunner", **TINY)).shapes
    states = [checkpoint.restore_latest(path / "checkpoints", like)[0] for path in (mixed, whole)]
    hashes += [checkpoint.inspect(checkpoint.checkpoints(path / "checkpoints")[0])["config"] for path in (mixed, whole)]
    return {"distance": max(map(distance, *map(leaves, states))), "hashes": hashes}


def in_host() -> dict[str, Any]:
    """An environment outside JAX: its steps are taken once, the gradient steps on all devices."""
    config = configure("half_cheetah", **TINY | {"gradient_steps": 5})
    states = [run(Trainer.build(config, devices=find_devices(count)), 2)[0][-1] for count in (1, 2)]
    return {"distance": max(map(distance, *map(leaves, states)))}


def refusals() -> list[str]:
    found = []
    for count, changes in (
        (0, {}),
        ("many", {}),
        (True, {}),
        (5, {}),
        (4, {"episodes": 6}),
        (4, {"batch_size": 18}),
        (4, {"seeds": 6}),
    ):
        try:
            Trainer.build(configure("gunner", **TINY | changes), devices=find_devices(count))
            found.append("")
        except UserError as error:
            found.append(str(error))
    return found


def compiled_again() -> int:
    """Programs that are compiled after the first epoch on four devices."""
    trainer = Trainer.build(configure("gunner", **TINY), devices=find_devices(4))
    state, _ = trainer.run_epoch(trainer.start(), 0)
    counted: list[str] = []

    class Count(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            counted.extend([record.getMessage()] if record.getMessage().startswith("Compiling") else [])

    logger = logging.getLogger("jax")
    logger.addHandler(handler := Count(logging.DEBUG))
    with jax.log_compiles():
        for epoch in range(1, 3):
            state, _ = trainer.run_epoch(state, epoch)
    logger.removeHandler(handler)
    return len(counted)


if __name__ == "__main__":
    use_compilation_cache()
    assert jax.device_count() == 4
    result = {"refusals": refusals(), "one_run": rows(), "seeds": seeds(), "resumed": resumed(Path(sys.argv[1]))}
    result["pipelines"] = pipelines(Path(sys.argv[1]))
    print(json.dumps(result | {"host": in_host(), "compiled_again": compiled_again()}))
