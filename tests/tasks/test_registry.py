"""Tasks by name: built-in ones, those of other packages, those in a file; layouts and presets as data."""

import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from susd import plugins
from susd.envs import make
from susd.errors import UserError
from susd.tasks import registry
from susd.tasks.gunner import GunnerTask
from susd.tasks.registry import BUILT_IN, TaskEntry, make_task, names, task_entry, tasks

BOUNDS = {
    "gunner-unlim": 400,
    "gunner-lim": 400,
    "multi_particle-seq-easy": 60,
    "multi_particle-seq-medium": 40,
    "multi_particle-seq-hard": 20,
    "multi_particle-fp-easy": 20,
    "multi_particle-fp-medium": 50,
    "multi_particle-fp-hard": 80,
    "multi_particle-fp-difficult": 100,
    **{f"kitchen-{task}": 50 for task in ("bip", "mip", "pos", "pot")},
}


def test_names_and_bounds() -> None:
    assert {name: make_task(name).bound for name in tasks()} == BOUNDS
    assert task_entry("seq-easy").name == "multi_particle-seq-easy"
    assert task_entry("multi_particle-seq-easy").short == "seq-easy"
    assert make_task("lim") == make_task("gunner-lim", start="centre")
    assert make_task("unlim", start=2).env == make("gunner", start=2)


def test_unknown_or_unfit_task() -> None:
    with pytest.raises(UserError, match="unknown task 'seq-brutal'; choose one of gunner-unlim"):
        make_task("seq-brutal")
    with pytest.raises(UserError, match="needs the environment 'multi_particle', not 'gunner'"):
        make_task("seq-easy", env=make("gunner"))
    with pytest.raises(UserError, match="not both"):
        make_task("seq-easy", env=make("multi_particle"), factors=1)
    with pytest.raises(UserError, match="no option 'start'"):
        make_task("seq-easy", start=0)
    with pytest.raises(UserError, match=r"susd.tasks.gunner:Missing cannot be imported"):
        registry._constructor(TaskEntry("odd", "gunner", "susd.tasks.gunner:Missing"))


def test_layouts() -> None:
    assert task_entry("lim").layout_options("3") == {"start": "3"}
    assert task_entry("fp-easy").layout_options("random") == {"layout": "random"}
    assert task_entry("fp-easy").layout_options("22") == {"layout": "fixed", "layout_seed": 22}
    assert task_entry("pot").layout_options("random") == {}
    for entry in BUILT_IN:
        assert entry.layouts.options(entry.layouts.default) is not None
        make(entry.env, **entry.layout_options(entry.layouts.default))
    for name, layout in (("lim", "random"), ("fp-easy", "-1"), ("fp-easy", "3000000000"), ("pot", "1")):
        with pytest.raises(UserError, match=f"--layout is '{layout}'; for {task_entry(name).env} it is"):
            task_entry(name).layout_options(layout)


def test_import_is_light() -> None:
    code = "import sys, susd.tasks as t; t.tasks(); assert not {'jax', 'mujoco', 'gymnasium'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


PLUGIN = """
from susd.tasks.registry import Layouts, TaskEntry
from susd.tasks.gunner import GunnerTask

class Shooting(GunnerTask):
    horizon = 500

ENTRY = TaskEntry("gunner-shoot", "gunner", Shooting, {"limited": True}, presets={"quick": {"hidden": 8}})
ANY = TaskEntry("any", "", Shooting, {"limited": True})
ELSEWHERE = TaskEntry("reach", "envs.py:Points", Shooting)
WRONG = Shooting
"""


def test_task_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "shooting_task.py"
    file.write_text(PLUGIN)
    entry = task_entry(f"{file}:ENTRY")
    assert (entry.name, entry.short, entry.layouts.default, entry.presets["quick"]) == (
        *("gunner-shoot", "shoot", "random"),
        {"hidden": 8},
    )
    task = make_task(f"{file}:ENTRY")
    assert isinstance(task, GunnerTask)
    assert (task.name, task.horizon, task.bound) == ("gunner-shoot", 500, 200)
    assert task_entry(f"{file}:ELSEWHERE").env == f"{tmp_path}/envs.py:Points"  # relative to the file of the task
    assert task_entry(f"{file}:ANY", "gunner").env == "gunner"  # of the run
    assert task_entry(f"{file}:WRONG", "gunner").name == "WRONG"  # a class is a task, too
    with pytest.raises(UserError, match=r"task 'WRONG' cannot be made for gunner: TypeError: .*limited"):
        make_task(f"{file}:WRONG", make("gunner"))


def test_task_of_another_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "shooting_plugin.py").write_text(PLUGIN)
    monkeypatch.syspath_prepend(tmp_path)
    points = {
        name: EntryPoint(name, f"shooting_plugin:{name_in_file}", "susd.tasks")
        for name, name_in_file in (("gunner-clay", "ENTRY"), ("gunner-odd", "WRONG"))
    }
    monkeypatch.setattr(plugins, "registered", lambda kind: points if kind == "tasks" else {})
    assert names()[-2:] == ("gunner-clay", "gunner-odd")
    assert "shooting_plugin" not in sys.modules  # names are known without an import
    assert make_task("gunner-clay").name == "gunner-clay"  # by the name of the entry point
    with pytest.raises(UserError, match=r"entry point 'gunner-odd' of susd\.tasks is a ABCMeta"):
        tasks()
    del points["gunner-odd"]
    assert task_entry("clay").name == "gunner-clay"
    registry._entry.cache_clear()
