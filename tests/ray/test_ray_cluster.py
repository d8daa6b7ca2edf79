"""The how-to of a cluster in docs/scaling.md works: two nodes, one of which is lost during training, and another one that joins."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from runs import ROOT, records

pytestmark = pytest.mark.ray


def example() -> str:
    """Returns the Python of the document."""
    (code,) = re.findall(
        r'```python\n(.*?)```', (ROOT / 'docs' / 'scaling.md').read_text(encoding='utf-8'), re.S
    )
    assert '40_000' in code and '20_000' in code
    return str(code).replace('40_000', '20_000').replace('>= 20_000', '>= 6_000')


def test_training_survives_the_loss_of_a_node_and_uses_a_new_one(tmp_path: Path) -> None:
    script = tmp_path / 'two_nodes.py'
    script.write_text(example(), encoding='utf-8')
    environment = {**os.environ, 'PYTHONPATH': str(ROOT)}
    done = subprocess.run(
        [sys.executable, str(script)],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    last = [record for record in records(tmp_path / 'two_nodes_seed0') if 'ray/lost' in record][-1]
    assert last['envstep'] > 15_000
    assert last['ray/actor_restarts'] >= 1 and last['ray/lost'] > 0
