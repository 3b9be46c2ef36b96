"""scripts/environment.sh where nothing can be fetched: a machine with unpacked wheels on PYTHONPATH."""

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def checkout(tmp_path):
    """A fresh checkout, and a PATH whose python3 has no packages of its own."""
    (tmp_path / "scripts").mkdir()
    script = tmp_path / "scripts/environment.sh"
    script.write_bytes((ROOT / "scripts/environment.sh").read_bytes())
    script.chmod(0o755)
    (tmp_path / "src").symlink_to(ROOT / "src")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/python3").symlink_to(Path(sys._base_executable).resolve())
    return tmp_path


def run(checkout, purpose, **variables):
    path = f"{checkout}/bin:/usr/bin:/bin"
    return subprocess.run(
        [checkout / "scripts/environment.sh", purpose],
        env={"PATH": path, **variables},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("purpose", ["demo", "test"])
def test_packages_on_pythonpath_are_enough_and_stay_there(checkout, purpose):
    packages = sysconfig.get_paths()["purelib"]
    done = run(checkout, purpose, PYTHONPATH=packages)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == f"env PYTHONPATH=src:{packages} python3"
    assert not (checkout / ".venv").exists()
    program = f"{done.stdout.strip()} -m cudahercules --help"
    asked = subprocess.run(
        program,
        shell=True,
        cwd=checkout,
        env={"PATH": f"{checkout}/bin:/usr/bin:/bin", "HOME": str(checkout)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert asked.returncode == 0, asked.stderr


def test_a_chosen_python_keeps_its_pythonpath(checkout):
    done = run(checkout, "demo", HERCULES_PYTHON="/opt/python", PYTHONPATH=f"/a{os.pathsep}/b")
    assert done.stdout.strip() == "env PYTHONPATH=src:/a:/b /opt/python"
