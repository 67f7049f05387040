"""Every shell script parses, and ShellCheck finds nothing in it that is likely a mistake."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPTS = sorted(
    path.relative_to(ROOT)
    for path in (
        ROOT / ".ci" / "run",
        *ROOT.glob("deploy/**/*.sh"),
        *ROOT.glob("deploy/**/*.sbatch"),
        *ROOT.glob("requirements/*.sh"),
    )
)


@pytest.mark.parametrize("script", SCRIPTS, ids=str)
def test_a_script_is_sound(script: Path) -> None:
    first = (ROOT / script).read_text().partition("\n")[0]
    shell = "bash" if "bash" in first else "sh"
    subprocess.run([shell, "-n", script], cwd=ROOT, check=True)
    checker = Path(sys.executable).with_name("shellcheck")
    said = subprocess.run(
        [checker, "--severity=warning", script], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert said.returncode == 0, said.stdout


def test_a_mistake_is_seen(tmp_path: Path) -> None:
    (tmp_path / "wrong.sh").write_text("#!/bin/sh\nfor file in $(ls); do rm $fil; done\n")
    checker = Path(sys.executable).with_name("shellcheck")
    assert (
        subprocess.run(
            [checker, "--severity=warning", tmp_path / "wrong.sh"], check=False, stdout=subprocess.DEVNULL
        ).returncode
        == 1
    )
