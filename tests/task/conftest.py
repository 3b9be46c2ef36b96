import pytest

from cudahercules.task.load import all_tasks


def pytest_generate_tests(metafunc):
    """``each_task``: one run for every bundled task that is built for the GPU at hand. ``known_task``:
    the same for the families that the test's file has an independent implementation of (``KNOWN``)."""
    tasks = [t for t in all_tasks() if t.target == "general"]
    if "each_task" in metafunc.fixturenames:
        metafunc.parametrize("each_task", tasks, ids=[t.id for t in tasks])
    if "known_task" in metafunc.fixturenames:
        known = [t for t in tasks if t.family in metafunc.module.KNOWN]
        metafunc.parametrize("known_task", known, ids=[t.id for t in known])


@pytest.fixture
def family_copy(tmp_path, monkeypatch):
    """Copy a bundled family, change its files, and load it: ``family_copy(edit)`` gives the folder."""
    import shutil

    from cudahercules.task.load import BUNDLED

    def copy(*edits, family="kernel/gemm", name="edited"):
        target = tmp_path / family.split("/")[0] / name
        shutil.copytree(BUNDLED / family, target, ignore=shutil.ignore_patterns("__pycache__"))
        text = (target / "task.yaml").read_text()
        for old, new in edits:
            assert old in text, f"{old!r} is not in task.yaml"
            text = text.replace(old, new, 1)
        (target / "task.yaml").write_text(text)
        monkeypatch.setenv("HERCULES_TASKS", str(tmp_path))
        return target

    return copy
