"""How far a run is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from susd.runs import checkpoint
from susd.runs.folder import RunFolder
from susd.runs.header import training_meta


def status(run: Path) -> dict[str, Any]:
    """Config, epoch, the last metrics, and the checksum of the whole training state of a run."""
    folder = RunFolder.open(run)
    skipped: list[str] = []
    found: dict[str, Any] = {
        "run": str(folder.path),
        **{name: folder.config[name] for name in ("env", "method", "preset", "seed", "seeds", "epochs")},
        "epoch": None,
        "checksum": None,
        "checkpoint": None,
        "finished": False,
    }
    for path in checkpoint.checkpoints(folder.checkpoints):
        try:
            meta, checksum = training_meta(checkpoint.inspect(path), path), checkpoint.digest_of(path)
        except checkpoint.DamagedCheckpointError as error:
            skipped.append(str(error))
            continue
        found |= {"checksum": checksum, "checkpoint": str(path), "epoch": meta["epoch"]}
        found |= {name: meta[name] for name in ("train_seconds", "compile_seconds")}
        break
    found["finished"] = found["epoch"] == folder.config["epochs"]
    metrics = folder.read_metrics()
    return found | {"skipped": skipped, "metrics": metrics[-1] if metrics else {}, "meta": folder.meta}
