"""Checkpoints round-trip bit for bit, and damage of the file or a killed process is always detected."""

import errno
import os
import signal
import struct
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from susd.errors import UserError
from susd.runs import checkpoint, header
from susd.runs.checkpoint import CheckpointError, DamagedCheckpointError

DTYPES = ["bfloat16", "float16", "float32", "bool", "int8", "uint8", "int16", "int32", "uint32", "float8_e4m3fn"]


class Pair(NamedTuple):
    first: Any
    second: Any


def state_of(epoch: int = 0) -> dict[str, Any]:
    return {
        "w": jnp.arange(6, dtype=jnp.float32).reshape(2, 3) + epoch,
        "key": jax.random.key(epoch),
        "n": jnp.int32(epoch),
    }


def bits(tree: Any) -> list[tuple[str, tuple[int, ...], bytes]]:
    arrays = [jax.random.key_data(x) if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else x for x in jax.tree.leaves(tree)]
    return [
        (str(leaf.dtype), leaf.shape, np.asarray(raw).tobytes())
        for leaf, raw in zip(jax.tree.leaves(tree), arrays, strict=True)
    ]


def assert_same(restored: Any, original: Any) -> None:
    assert jax.tree.structure(restored) == jax.tree.structure(original)
    assert bits(restored) == bits(original)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (0,), (7,), (3, 0, 2), (3, 5, 2)])
def test_every_dtype_round_trips(tmp_path: Path, dtype: str, shape: tuple[int, ...]) -> None:
    itemsize = jnp.dtype(dtype).itemsize
    raw = np.random.default_rng(0).integers(0, 2 if dtype == "bool" else 256, (*shape, itemsize), dtype=np.uint8)
    array = jax.device_put(raw.view(jnp.dtype(dtype))[..., 0])  # includes NaNs with payloads, denormals and -0
    path = checkpoint.save(tmp_path, 1, array, {})
    restored, _ = checkpoint.restore(path, jax.eval_shape(lambda: array))
    assert isinstance(restored, jax.Array)
    assert_same(restored, array)


@pytest.mark.parametrize("impl", ["threefry2x32", "rbg", "unsafe_rbg"])
def test_prng_keys_round_trip(tmp_path: Path, impl: str) -> None:
    keys = {"one": jax.random.key(3, impl=impl), "many": jax.random.split(jax.random.key(4, impl=impl), 5)}
    restored, _ = checkpoint.restore(checkpoint.save(tmp_path, 1, keys, {}), jax.eval_shape(lambda: keys))
    assert_same(restored, keys)
    assert jax.random.key_impl(restored["one"]) == impl
    assert jnp.array_equal(jax.random.normal(restored["one"], (4,)), jax.random.normal(keys["one"], (4,)))


def test_model_and_optimizer_round_trip(tmp_path: Path) -> None:
    model = eqx.filter(eqx.nn.MLP(3, 2, 8, 2, key=jax.random.key(0)), eqx.is_array)
    state = Pair(
        {"model": model, "none": None}, [optax.adam(1e-3).init(model), (jnp.uint32(7), np.arange(3, dtype=np.int16))]
    )
    meta = {"coverage": 0.25, "history": [1, 2], "name": "ünïcode", "nothing": None}
    path = checkpoint.save(tmp_path, 12, state, meta, config="abc")
    for like in (state, jax.eval_shape(lambda: state)):
        restored, restored_meta = checkpoint.restore(path, like, "abc")
        assert_same(restored, state)
        assert restored_meta == meta
    assert path.name == "step-00000012.ckpt"
    header = checkpoint.inspect(path)
    assert (header["epoch"], header["config"], header["meta"]) == (12, "abc", meta)
    assert header["bytes"] == path.stat().st_size


def test_unusual_arrays_round_trip(tmp_path: Path) -> None:
    state = {
        "fortran": np.asfortranarray(np.arange(12, dtype=np.float32).reshape(3, 4)),
        "strided": np.arange(20, dtype=np.int32)[::2],
        "big-endian": np.arange(4, dtype=">f4"),
        "wide": np.array([2**60 + 1, -1], np.int64),  # JAX would make it 32 bits wide
    }
    restored, _ = checkpoint.restore(checkpoint.save(tmp_path, 0, state, {}), state)
    for name, array in state.items():
        np.testing.assert_array_equal(np.asarray(restored[name]), array)
    assert restored["wide"].dtype == np.int64


def test_restored_arrays_can_be_donated(tmp_path: Path) -> None:
    path = checkpoint.save(tmp_path, 0, state_of(), {})
    before = path.read_bytes()
    restored, _ = checkpoint.restore(path, state_of())
    bump = jax.jit(lambda w: w + 1, donate_argnums=0)
    np.testing.assert_array_equal(bump(restored["w"]), state_of()["w"] + 1)
    assert path.read_bytes() == before


@pytest.mark.parametrize("leaf", [1.5, "text", np.array(["a"]), jnp.tanh, np.array([None])])
def test_only_arrays_are_saved(tmp_path: Path, leaf: Any) -> None:
    with pytest.raises(TypeError, match=r"\['a'\]"):
        checkpoint.save(tmp_path, 0, {"a": leaf}, {})
    assert not list(tmp_path.iterdir())


# Replay buffers: only the filled rows are stored.


@pytest.mark.parametrize("axis", [0, 1])
def test_unfilled_rows_are_not_written(tmp_path: Path, axis: int) -> None:
    buffer = {"obs": np.zeros((5000, 4) if axis == 0 else (2, 5000, 4), np.float32), "done": np.zeros((5000, 5000), bool)}
    for array in buffer.values():
        array[(slice(None),) * axis + (slice(70),)] = 1
    state = {"replay": buffer | {"size": np.int32(70)}, "w": np.ones(3, np.float32)}
    path = checkpoint.save(tmp_path, 0, state, {}, rows={"['replay']": (axis, 70)})
    assert path.stat().st_size < 400_000
    restored, _ = checkpoint.restore(path, state)
    assert_same(restored, state)
    assert checkpoint.digest_of(path) == checkpoint.digest(restored) == checkpoint.digest(state)


@pytest.mark.parametrize("value", [1.0, -0.0, np.nan])
def test_non_zero_rows_are_always_written(tmp_path: Path, value: float) -> None:
    array = np.zeros((100, 3), np.float32)
    array[99, 2] = value
    restored, _ = checkpoint.restore(checkpoint.save(tmp_path, 0, [array], {}, rows={"": (0, 10)}), [array])
    assert_same(restored, [array])


def test_saving_does_not_copy_large_arrays(tmp_path: Path) -> None:
    state = {"replay": jnp.ones((3, 12_000_000), jnp.float32)}
    jax.block_until_ready(state)
    tracemalloc.start()
    path = checkpoint.save(tmp_path, 0, state, {}, rows={"replay": (1, 10_000_000)})
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20e6
    assert path.stat().st_size > 144e6


# Damage.


def boundaries(path: Path) -> list[int]:
    """Where one part of the file ends and the next begins."""
    content = path.read_bytes()
    header = struct.unpack("<8sIQQ", content[:28])[2]
    start = 28 + header + 32
    leaves = checkpoint._table(checkpoint.inspect(path))
    bounds = [start + bound for leaf in leaves for bound in (leaf.offset, leaf.end)]
    return [0, 8, 12, 20, 28, 28 + header, start, *bounds, len(content)]


def test_truncated_file_is_refused(tmp_path: Path) -> None:
    path = checkpoint.save(tmp_path, 0, state_of(), {"a": 1})
    content = path.read_bytes()
    cuts = {b + d for b in boundaries(path) for d in (-1, 0, 1)} & set(range(len(content)))
    assert len(cuts) > 15
    for cut in sorted(cuts):
        path.write_bytes(content[:cut])
        with pytest.raises(DamagedCheckpointError, match="is incomplete") as error:
            checkpoint.restore(path, state_of())
        assert str(path) in str(error.value)
    path.write_bytes(content + b"x")
    with pytest.raises(DamagedCheckpointError, match="bytes instead of"):
        checkpoint.restore(path, state_of())


@settings(max_examples=150, deadline=None)
@given(data=st.data(), bit=st.integers(0, 7))
def test_any_flipped_bit_is_detected(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, bit: int) -> None:
    path = checkpoint.save(tmp_path_factory.getbasetemp() / "flips", 0, state_of(), {"a": 1})
    content = bytearray(path.read_bytes())
    position = data.draw(
        st.one_of(
            st.integers(0, len(content) - 1), st.sampled_from([bound for bound in boundaries(path) if bound < len(content)])
        )
    )
    content[position] ^= 1 << bit
    path.write_bytes(content)
    with pytest.raises(DamagedCheckpointError):
        checkpoint.restore(path, state_of())
    with pytest.raises(DamagedCheckpointError):
        checkpoint.digest_of(path)


def test_version_1_is_refused_with_a_sentence(tmp_path: Path) -> None:
    path = checkpoint.save(tmp_path, 0, state_of(), {})
    content = bytearray(path.read_bytes())
    content[8:12] = struct.pack("<I", 1)
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match="has format 1; this version of susd reads format 2: train the run again"):
        checkpoint.restore_latest(tmp_path, state_of(), on_skip=pytest.fail)


# A part of the leaves.


def test_subset_reads_and_verifies_only_its_leaves(tmp_path: Path) -> None:
    state = {"learner": {"actor": jnp.arange(3.0), "critic": jnp.ones(2)}, "replay": jnp.ones(50_000)}
    like = jax.eval_shape(lambda: state)
    path = checkpoint.save(tmp_path, 0, state, {"epoch": 0}, config="abc")
    content = bytearray(path.read_bytes())
    content[-1] ^= 1  # in the replay
    path.write_bytes(content)
    restored, meta = checkpoint.restore(path, like, "abc", only=("['learner']['actor']",))
    assert meta == {"epoch": 0}
    assert_same(restored["learner"]["actor"], state["learner"]["actor"])
    assert restored["learner"]["critic"] is like["learner"]["critic"]
    assert restored["replay"] is like["replay"]
    for only in (("",), ("['replay']",), ("['learner']['actor']", "['replay']")):
        with pytest.raises(DamagedCheckpointError, match=r"checksum of leaf \['replay'\] does not match"):
            checkpoint.restore(path, like, "abc", only)
    with pytest.raises(CheckpointError, match="another config"):
        checkpoint.restore(path, like, "abd", only=("['learner']['actor']",))
    with pytest.raises(CheckpointError, match=r"leaf \['replay'\] is float32\[50000\], expected float32\[9\]"):
        checkpoint.restore(path, like | {"replay": jnp.ones(9)}, "abc", only=("['learner']['actor']",))


def test_file_may_hold_some_leaves_only(tmp_path: Path) -> None:
    actor, critic = jnp.arange(3.0), jnp.ones(2)
    path = checkpoint.save(tmp_path, 0, {"actor": actor, "critic": None}, {"weights_only": True})
    restored, _ = checkpoint.restore(path, {"actor": actor, "critic": critic}, only=("['actor']",))
    assert_same(restored["actor"], actor)
    for only in (("",), ("['critic']",)):
        with pytest.raises(CheckpointError, match=r"it lacks leaf \['critic'\]"):
            checkpoint.restore(path, {"actor": actor, "critic": critic}, only=only)
    assert header.weights_only(path)
    assert not header.weights_only(checkpoint.save(tmp_path, 1, {"actor": actor}, {}))


@settings(max_examples=60, deadline=None)
@given(position=st.integers(0, 10**6), bit=st.integers(0, 7))
def test_flipped_bit_in_subset_is_detected(tmp_path_factory: pytest.TempPathFactory, position: int, bit: int) -> None:
    path = checkpoint.save(tmp_path_factory.getbasetemp() / "parts", 0, state_of(), {})
    leaf = next(leaf for leaf in checkpoint._table(checkpoint.inspect(path)) if leaf.path == "['w']")
    content = bytearray(path.read_bytes())
    start = boundaries(path)[6]
    content[start + leaf.offset + position % (leaf.end - leaf.offset)] ^= 1 << bit
    path.write_bytes(content)
    checkpoint.restore(path, state_of(), only=("['n']", "['key']"))
    with pytest.raises(DamagedCheckpointError):
        checkpoint.restore(path, state_of(), only=("['w']",))


@pytest.mark.parametrize("content", [b"PK\x03\x04 something else", bytes(4096), b"{}", b"\x89PNG\r\n\x1a\n" + bytes(100)])
def test_foreign_file_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "step-00000001.ckpt"
    path.write_bytes(content)
    for read in (checkpoint.inspect, checkpoint.digest_of, lambda p: checkpoint.restore(p, state_of())):
        with pytest.raises(UserError, match="not a susd checkpoint"):
            read(path)


def test_missing_file_and_folder_are_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="there is no checkpoint"):
        checkpoint.restore(tmp_path / "step-00000001.ckpt", state_of())
    with pytest.raises(CheckpointError, match="cannot be read"):
        checkpoint.restore(tmp_path, state_of())


def test_other_format_version_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint, "VERSION", 9)
    checkpoint.save(tmp_path, 0, state_of(), {})
    monkeypatch.undo()
    with pytest.raises(CheckpointError, match="has format 9; this version of susd reads format 2: train the run again"):
        checkpoint.restore_latest(tmp_path, state_of())


@pytest.mark.parametrize(
    ("like", "message"),
    [
        (state_of() | {"w": jnp.zeros((2, 4))}, r"leaf \['w'\] is float32\[2, 3\], expected float32\[2, 4\]"),
        (state_of() | {"w": jnp.zeros((2, 3), jnp.bfloat16)}, r"expected bfloat16\[2, 3\]"),
        (state_of() | {"extra": jnp.zeros(1)}, r"it lacks leaf \['extra'\]"),
        ({"w": state_of()["w"], "n": jnp.int32(0)}, r"it has leaf \['key'\], which is not expected"),
        (state_of() | {"key": jax.random.key(0, impl="rbg")}, r"leaf \['key'\] is key<fry>\[2\], expected key<rbg>\[4\]"),
    ],
)
def test_mismatched_leaves_are_named(tmp_path: Path, like: Any, message: str) -> None:
    path = checkpoint.save(tmp_path, 0, state_of(), {})
    checkpoint.save(tmp_path, 1, state_of(), {})
    with pytest.raises(CheckpointError, match=message):
        checkpoint.restore(path, like)
    with pytest.raises(CheckpointError, match=message):  # which is no damage, so that older ones are not tried
        checkpoint.restore_latest(tmp_path, like, on_skip=pytest.fail)


def test_other_config_hash_is_refused(tmp_path: Path) -> None:
    path = checkpoint.save(tmp_path, 0, state_of(), {}, config="aaaa")
    with pytest.raises(CheckpointError, match="another config: its hash is 'aaaa', not 'bbbb'"):
        checkpoint.restore(path, state_of(), "bbbb")


# Several checkpoints.


def test_newest_checkpoints_are_kept(tmp_path: Path) -> None:
    for epoch in range(1, 6):
        checkpoint.save(tmp_path, epoch, state_of(epoch), {"epoch": epoch}, keep=3)
    assert [checkpoint.epoch_of(p) for p in checkpoint.checkpoints(tmp_path)] == [5, 4, 3]
    state, meta, path = checkpoint.restore_latest(tmp_path, state_of(), on_skip=pytest.fail)
    assert_same(state, state_of(5))
    assert (meta, path) == ({"epoch": 5}, tmp_path / "step-00000005.ckpt")
    with pytest.raises(ValueError, match="keep"):
        checkpoint.save(tmp_path, 6, state_of(), {}, keep=0)


def test_damaged_newest_is_skipped_and_replaced(tmp_path: Path) -> None:
    paths = [checkpoint.save(tmp_path, epoch, state_of(epoch), {}, keep=3) for epoch in (10, 20, 30)]
    os.truncate(paths[2], 100)
    paths[1].write_bytes(paths[1].read_bytes()[:-1] + b"\0")
    skipped: list[str] = []
    state, _, path = checkpoint.restore_latest(tmp_path, state_of(), on_skip=skipped.append)
    assert_same(state, state_of(10))
    assert path == paths[0]
    assert [str(p) in s for p, s in zip(paths[:0:-1], skipped, strict=True)] == [True, True]
    # The run was resumed from 10, so that the later ones must not be newer than its next checkpoint.
    checkpoint.save(tmp_path, 15, state_of(15), {})
    assert [checkpoint.epoch_of(p) for p in checkpoint.checkpoints(tmp_path)] == [15, 10]


def test_truncated_one_does_not_count_as_kept(tmp_path: Path) -> None:
    paths = [checkpoint.save(tmp_path, epoch, state_of(epoch), {}) for epoch in (1, 2)]
    os.truncate(paths[1], 50)
    checkpoint.save(tmp_path, 3, state_of(3), {}, keep=2)
    assert paths[0].exists()


def test_none_and_none_usable_have_own_errors(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="no checkpoint in"):
        checkpoint.restore_latest(tmp_path / "missing", state_of())
    for epoch in (1, 2):
        (tmp_path / f"step-{epoch:08d}.ckpt").write_bytes(b"SUSD")
    (tmp_path / "step-old.ckpt").write_bytes(b"a user's own name is not looked at")
    with pytest.raises(CheckpointError, match=r"all 2 are damaged: .*00000002.*incomplete.*00000001.*incomplete"):
        checkpoint.restore_latest(tmp_path, state_of())


# Interrupted and failing writes.


def raising(error: BaseException) -> Callable[..., Any]:
    def fail(*_: Any, **__: Any) -> Any:
        raise error

    return fail


@pytest.mark.parametrize("step", ["_content", "fsync", "replace"])
@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError(errno.EIO, "Input/output error")])
def test_interrupted_save_keeps_older_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, error: BaseException
) -> None:
    old = checkpoint.save(tmp_path, 1, state_of(1), {})
    before = old.read_bytes()
    if step == "_content":
        content = checkpoint._content

        def some(*arguments: Any) -> Any:
            for count, chunk in enumerate(content(*arguments)):
                if count == 3:
                    raise error
                yield chunk

        monkeypatch.setattr(checkpoint, step, some)
    else:
        monkeypatch.setattr(os, step, raising(error))
    kind = CheckpointError if isinstance(error, OSError) else KeyboardInterrupt
    with pytest.raises(kind):
        checkpoint.save(tmp_path, 2, state_of(2), {}, keep=1)
    assert list(tmp_path.iterdir()) == [old]
    assert old.read_bytes() == before


def test_leftovers_of_a_crash_are_removed(tmp_path: Path) -> None:
    checkpoint.save(tmp_path, 1, state_of(1), {})
    leftover = tmp_path / ".step-00000002.ckpt.1234.tmp"
    leftover.write_bytes(b"SUSDCKPT and no more")
    assert checkpoint.restore_latest(tmp_path, state_of(), on_skip=pytest.fail)[2].name == "step-00000001.ckpt"
    checkpoint.save(tmp_path, 3, state_of(3), {})
    assert not leftover.exists()


def test_full_disk_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint.save(tmp_path, 1, state_of(), {})
    monkeypatch.setattr(os, "fsync", raising(OSError(errno.ENOSPC, "No space left on device")))
    with pytest.raises(UserError, match=r"00000002.*the disk is full \(.* MB needed, .* MB free\)"):
        checkpoint.save(tmp_path, 2, state_of(), {})
    assert [p.name for p in tmp_path.iterdir()] == ["step-00000001.ckpt"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_full_device_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("builtins.open", lambda path, mode, real=open: real("/dev/full" if mode == "wb" else path, mode))
    with pytest.raises(UserError, match="the disk is full"):
        checkpoint.save(tmp_path, 2, {"w": jnp.zeros((1000, 1000))}, {})


def test_impossible_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"cannot write .*file.*Not a directory"):
        checkpoint.save(tmp_path / "file" / "checkpoints", 1, state_of(), {})


SAVE_FOREVER = """
import sys, numpy as np
from pathlib import Path
from susd.runs import checkpoint
epoch = 0
while True:
    epoch += 1
    checkpoint.save(Path(sys.argv[1]), epoch, {"w": np.full((500_000,), epoch, np.float32)}, {"epoch": epoch})
    print(epoch, flush=True)
"""


@pytest.mark.slow
@pytest.mark.parametrize("delay", [0.0, 0.013, 0.031])
def test_killed_process_leaves_good_checkpoints(tmp_path: Path, delay: float) -> None:
    child = subprocess.Popen([sys.executable, "-c", SAVE_FOREVER, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    with child:
        last = [int(child.stdout.readline()) for _ in range(3)][-1]
        time.sleep(delay)
        child.send_signal(signal.SIGKILL)
        last = int([last, *child.stdout.read().split()][-1])
    like = {"w": jax.ShapeDtypeStruct((500_000,), jnp.float32)}
    state, meta, path = checkpoint.restore_latest(tmp_path, like, on_skip=pytest.fail)
    assert meta["epoch"] == checkpoint.epoch_of(path) >= last
    assert jnp.all(state["w"] == meta["epoch"])
    checkpoint.save(tmp_path, meta["epoch"] + 1, state, {})
    assert not list(tmp_path.glob(".*"))


# Digests.


def test_digest_depends_on_content_only(tmp_path: Path) -> None:
    base = {"a": jnp.zeros(4), "b": jnp.zeros((2, 2), jnp.int32)}
    others = [
        base,
        base | {"a": jnp.zeros(4).at[2].set(-0.0)},
        base | {"a": jnp.zeros((4, 1))},
        base | {"a": jnp.zeros(4, jnp.int32)},
        {"a": base["a"], "c": base["b"]},
        {"a": base["a"]},
        base | {"k": jax.random.key(0)},
        base | {"k": jax.random.key_data(jax.random.key(0))},
    ]
    assert len({checkpoint.digest(other) for other in others}) == len(others)
    assert checkpoint.digest(jax.tree.map(np.asarray, base)) == checkpoint.digest(base)
    for other in others:
        assert checkpoint.digest_of(checkpoint.save(tmp_path, 1, other, {})) == checkpoint.digest(other)
    assert checkpoint.digest(base) == "4ee25b233930d0d60f115332e4e100fc"  # the value must not change between versions
