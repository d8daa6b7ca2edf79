"""Fixtures that several files of this folder share."""

from __future__ import annotations

from pathlib import Path

import pytest
from runs import ROOT, Run

from rlframe.entry.__main__ import main


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs a command line in this process, in an empty folder, and returns its exit code and what it printed."""
    monkeypatch.chdir(tmp_path)

    def call(*words: str) -> tuple[int, str, str]:
        capsys.readouterr()
        try:
            code = main([str(ROOT / word) if word.startswith('configs/') else word for word in words])
        except SystemExit as error:
            code = int(error.code)  # type: ignore[arg-type]
        return code, *capsys.readouterr()

    return call
