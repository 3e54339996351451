"""The downstream tasks. Nothing here imports JAX until a task is made."""

from susd.tasks.registry import Layouts, TaskEntry, make_task, task_entry, tasks

__all__ = ["Layouts", "TaskEntry", "make_task", "task_entry", "tasks"]
