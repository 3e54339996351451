"""`susd bench` and `susd doctor`: FLOPs as counted by hand, consistent rates, problems with remedies."""

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from susd.config import Config, configure
from susd.errors import UserError
from susd.methods.registry import methods
from susd.tools import bench, doctor
from susd.training.trainer import Trainer
from susd.types import Transition


def tiny(env: str = "gunner", **changes: Any) -> Config:
    sizes = {
        "layers": 1,
        "hidden": 16,
        "phi_hidden": 8,
        "density_hidden": 12,
        "batch_size": 32,
        "horizon": 5,
        "gradient_steps": 2,
    }
    return configure(env, **{**sizes, "buffer_size": 400, "warmup": 100, **changes})


def forward(batch: int, *sizes: int) -> int:
    return sum(2 * batch * a * b for a, b in itertools.pairwise(sizes))


def trained(batch: int, *sizes: int) -> int:
    """Forward, gradient of every weight, gradient of every activation except the input."""
    return 2 * forward(batch, *sizes) + forward(batch, *sizes[1:])


def update_flops(config: Config) -> int:
    """The matrix products of one SUSD update on Gunner, added up from the layers' sizes."""
    states, actions, factors, widest, batch = 18, Trainer.build(config).env.spec.action_size, 3, 7, config.batch_size
    skill = factors * config.skill_dim
    phi = (widest, *[config.phi_hidden] * config.layers, config.skill_dim)
    density = (states, *[config.density_hidden] * config.layers, states)
    actor = (states + skill, *[config.hidden] * config.layers, 2 * actions)
    critic = (states + skill + actions, *[config.hidden] * config.layers, 1)
    method = factors * (trained(2 * batch, *phi) + forward(2 * batch, *phi)) + 2 * trained(batch, *density)
    weights = forward(batch, states, factors)  # kappa summed over the dimensions of each factor
    critic_step = forward(batch, *actor) + 2 * forward(batch, *critic) + 2 * trained(batch, *critic)
    through = forward(batch, actions, *critic[1:])  # gradients of the critics' activations down to the action, not to x
    actor_step = trained(batch, *actor) + 2 * (forward(batch, *critic) + through)
    return method + weights + critic_step + actor_step


def traced_flops(config: Config) -> int:
    trainer = Trainer.build(config)
    learner, spec = trainer.learner, trainer.env.spec
    state = jax.eval_shape(learner.init, jax.random.key(0))
    shapes = [(spec.obs_size,), (spec.action_size,), (spec.obs_size,), (learner.method.skills.size,), ()]
    batch = Transition(*(jax.ShapeDtypeStruct((config.batch_size, *s), jnp.float32) for s in shapes))
    return bench.matmul_flops(learner.update, state, batch, jax.random.key(0))


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes", [{}, {"layers": 2}, {"hidden": 24}, {"phi_hidden": 40}, {"density_hidden": 20}, {"batch_size": 7}]
)
def test_update_flops(changes: dict[str, Any]) -> None:
    config = tiny(**changes)
    assert traced_flops(config) == update_flops(config)


def test_flops_of_loops_and_branches() -> None:
    def function(x: jax.Array) -> jax.Array:
        x = jax.lax.scan(lambda c, _: (c @ c, None), x, None, length=5)[0]
        return jax.lax.cond(x[0, 0] > 0, lambda y: y @ y @ y, lambda y: y, x)

    assert bench.matmul_flops(function, jnp.ones((4, 4))) == 7 * 2 * 4**3


def test_unused_products_do_not_count() -> None:
    def function(x: jax.Array) -> jax.Array:
        _ = x @ x
        return x @ x

    assert bench.matmul_flops(function, jnp.ones((4, 4))) == 2 * 4**3


@pytest.mark.slow
def test_bench_update(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "MATMUL", 512)
    config = tiny(precision="bfloat16")
    result = bench.run("update", config, 0.1)
    assert result["flops_per_update"] == update_flops(config)
    assert result["flops_per_update"] < result["flops_per_update_xla"]  # XLA also counts other operations
    assert result["repetitions"] >= 3
    assert result["compile_seconds"] > 0
    for kind in ("float32", "bfloat16"):
        assert 0 < result[f"share_of_matmul_{kind}"] < 1.5
        assert result[f"matmul_{kind}_flops_per_second"] > 1e8
    rate = result["gradient_steps_per_second"] * result["flops_per_update"]
    assert result["flops_per_second"] == pytest.approx(rate)
    check_facts(result, config)


@pytest.mark.slow
def test_bench_methods(monkeypatch: pytest.MonkeyPatch) -> None:
    """With two of the methods; `susd` is the one that the others are compared with."""
    monkeypatch.setattr(bench, "methods", lambda: {name: methods()[name] for name in ("susd", "lsd")})
    shared = {"layers": 1, "hidden": 16, "phi_hidden": 8, "batch_size": 32, "horizon": 5, "gradient_steps": 2, "tau": 0.25}
    config = configure("gunner", buffer_size=400, warmup=100, **shared)
    result = bench.run("methods", config, 0.1)
    assert list(result["methods"]) == ["susd", "lsd"]
    assert result["repetitions"] >= 3
    for name, one in result["methods"].items():
        own = configure("gunner", buffer_size=400, warmup=100, method=name, **shared)
        assert one["flops_per_update"] == traced_flops(own)
        assert one["gradient_steps_per_second"] > 0
    susd, lsd = result["methods"].values()
    assert (susd["time_of_susd"], susd["flops_of_susd"]) == (1.0, 1.0)
    assert lsd["flops_of_susd"] == lsd["flops_per_update"] / susd["flops_per_update"]
    assert lsd["parameters"] < susd["parameters"]  # no density model
    lines = bench.format_bench(result).splitlines()
    assert lines[0].startswith("methods gunner, preset quick; ")
    assert [line.split(":")[0].strip() for line in lines[-2:]] == ["susd", "lsd"]


@pytest.mark.parametrize("changes", [{"constraint": "joint"}, {"density_hidden": 9}, {"seeds": 2}])
def test_bench_methods_refuses_method_options(changes: dict[str, Any]) -> None:
    (name,) = changes
    flag = "--" + name.replace("_", "-")
    with pytest.raises(UserError, match=rf"^{flag} is {changes[name]!r}, but .*; leave it out of `susd bench methods`$"):
        bench.run("methods", configure("gunner", **changes), 0.1)


def test_bench_env() -> None:
    result = bench.run("env", tiny("multi_particle"), 0.05, 3)
    assert result["num_envs"] == 3
    assert 0 < result["env_steps_per_second"] <= result["env_steps_per_second_best"]
    check_facts(result, tiny("multi_particle"))


@pytest.mark.parametrize(("given", "num_envs"), [(None, 4), (3, 3)])
def test_bench_env_outside_jax(given: int | None, num_envs: int) -> None:
    assert bench.run("env", configure("half_cheetah", episodes=4), 0.05, given)["num_envs"] == num_envs


@pytest.mark.slow
def test_bench_epoch() -> None:
    config, seeds = tiny(seeds=2), 2
    result = bench.run("epoch", config, 0.1)
    assert result["compilations_after_first_epoch"] == 0
    assert result["repetitions"] >= 2
    assert result["epochs_per_second"] == pytest.approx(seeds / result["epoch_seconds"])
    assert result["env_steps_per_second"] == pytest.approx(result["epochs_per_second"] * 8 * 5)
    assert result["gradient_steps_per_second"] == pytest.approx(result["epochs_per_second"] * 2)
    check_facts(result, config)


def check_facts(result: dict[str, Any], config: Config) -> None:
    assert json.loads(json.dumps(result, allow_nan=False)) == result
    assert Config.from_json(result["config"]) == config
    assert result["versions"]["jax"] == jax.__version__
    assert result["device"]["platform"] == jax.default_backend()
    assert result["cpus"] >= 1
    assert "commit" in result
    assert result["peak_resident_bytes"] > 50e6
    assert config.env in bench.format_bench(result)


def test_compilations_are_counted() -> None:
    with bench._count_compilations() as seen:
        jax.jit(lambda x: x + 12345)(jnp.ones(3)).block_until_ready()
    assert seen
    with bench._count_compilations() as seen:
        pass
    assert not seen


@pytest.mark.parametrize(
    ("what", "seconds", "num_envs", "changes", "sentence"),
    [
        ("flight", 1.0, None, {}, "benchmark 'flight' is unknown"),
        ("env", 0.0, 1, {}, "--seconds is 0.0; it must be more than 0"),
        ("env", float("nan"), 1, {}, "--seconds is nan"),
        ("epoch", -1.0, None, {}, "--seconds is -1"),
        ("env", 1.0, 0, {}, "--num-envs is 0; it must be from 1 to"),
        ("update", 1.0, None, {"seeds": 2}, "`update` measures one agent"),
    ],
)
def test_invalid_values(what: str, seconds: float, num_envs: int | None, changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        bench.run(what, tiny(**changes), seconds, num_envs)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    before = jax.config.jax_compilation_cache_dir  # type: ignore[attr-defined]
    monkeypatch.setenv("SUSD_CACHE_DIR", str(tmp_path / "cache"))
    yield tmp_path / "cache"
    jax.config.update("jax_compilation_cache_dir", before)


@pytest.mark.slow
def test_doctor(cache: Path) -> None:
    config = tiny(seeds=2)
    result = doctor.examine(config)
    assert json.loads(json.dumps(result, allow_nan=False)) == result
    assert result["cache_folder"] == str(cache)
    assert result["cache_writable"]
    assert result["replay_transitions"] == 400
    assert result["replay_bytes"] == 2 * 400 * 4 * (2 * 18 + Trainer.build(config).env.spec.action_size + 6 + 1)
    assert result["state_bytes"] > result["replay_bytes"]
    assert result["memory_total_bytes"] >= result["memory_available_bytes"] > 0
    assert result["env_steps_per_second"] > 0
    assert result["devices_used"] == 1
    assert result["state_bytes_per_device"] == result["state_bytes"]
    assert result["all_reduce_bytes_per_update"] == 0
    text = doctor.format_doctor(result)
    assert "its devices        1 cpu device: 800 replay rows" in text
    assert str(cache) in text
    assert jax.__version__ in text


def test_doctor_problems(cache: Path) -> None:
    del cache
    good = {
        "device": {"platform": "cpu", "kind": "cpu", "count": 1},
        "config": {"precision": "float32"},
        "devices_used": 2,
        "state_bytes_per_device": 2**20,
        "memory_available_bytes": 2**30,
        "cache_writable": True,
        "cache_folder": "/cache",
        "ffmpeg": "/ffmpeg",
        "mujoco_rendering_problem": "",
        "usable_cpus": 2,
        "cpus": 2,
        "bf16_speedup": 0.6,
    }
    assert doctor.problems(good) == []
    bad = {
        "reduce --buffer-size": {"state_bytes_per_device": 2**29},
        "set SUSD_CACHE_DIR": {"cache_writable": False},
        "pip install imageio-ffmpeg": {"ffmpeg": None},
        "no videos of MuJoCo environments: images need OpenGL": {"mujoco_rendering_problem": "images need OpenGL"},
        "1 of 2 CPUs": {"usable_cpus": 1},
        "--precision float32": {"config": {"precision": "bfloat16"}},
    }
    for words, change in bad.items():
        (sentence,) = doctor.problems({**good, **change})
        assert words in sentence


def test_writable_creates_nothing(tmp_path: Path) -> None:
    assert doctor.writable(tmp_path / "a" / "b")
    assert not (tmp_path / "a").exists()
    (tmp_path / "file").write_text("")
    assert not doctor.writable(tmp_path / "file" / "b")
