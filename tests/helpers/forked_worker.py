"""Stands for a worker process of Ray: the fork server makes the worker, so that it need not import torch and rlframe again."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

from fork_server import ADDRESS, stand_for_copy

if __name__ == '__main__':
    found = importlib.util.find_spec('ray')
    assert found is not None and found.origin is not None
    worker = Path(found.origin).with_name('_private') / 'workers' / 'default_worker.py'
    stand_for_copy(os.environ[ADDRESS], [str(worker), *sys.argv[1:]])
