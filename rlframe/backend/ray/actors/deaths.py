"""Finds out why the process of an actor ended, and ends its leftover processes."""

from __future__ import annotations

import contextlib
import os
import re
import textwrap
from collections.abc import Iterable
from pathlib import Path

from ray.exceptions import ActorDiedError

from rlframe.backend.ray.actors.actor import Facts
from rlframe.backend.ray.actors.address import probe
from rlframe.backend.ray.actors.guard import end_writers
from rlframe.backend.ray.actors.last_words import last_words
from rlframe.utils.lazy import LazyModule

ray = LazyModule('ray')

COLOUR = r'\x1b\[[0-9;]*m'
LONGEST_CAUSE = 400
"""Maximum length of a line about a lost actor, as Ray adds advice for every case."""
CLOSE_SECONDS = 1.0
"""Seconds that an actor has to end after Ray was told to kill it; then this process kills it and its children."""


def cause_of(error: Exception) -> str:
    """Returns the cause of a loss: how the process ended, and the first and last line of Ray's message."""
    text = re.sub(COLOUR, '', str(error))
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    told = dict.fromkeys([*lines[:1], *lines[-1:]])
    cause = ' '.join([f'{type(error).__name__}:', *(textwrap.shorten(line, LONGEST_CAUSE) for line in told)])
    if isinstance(error, ActorDiedError) and 'its worker process has died' in text:
        return f'{_how_it_ended(text)} ({cause})'
    return cause


def end_leftovers(actors: Iterable[Facts | None]) -> None:
    """Ends what remains on this machine of actors that were told to end: a stopped process and its children.

    Args:
        actors: Facts about each actor; None for those that were never ready.
    """
    here = [facts.pid for facts in actors if facts is not None and facts.node == os.uname().nodename]
    if logs := [str(log) for pid in here if (log := _log_of(pid)) is not None]:
        end_writers(logs, CLOSE_SECONDS)


def _how_it_ended(text: str) -> str:
    """Returns how a process ended, from Ray's message and the process's own log."""
    if found := re.search(r'exits with an exit code (-?\d+)', text):
        return f'its process exited with code {found[1]}'
    facts = dict(re.findall(r'^\s*(pid|ip): (\S+)$', text, re.MULTILINE))
    if 'pid' not in facts or facts.get('ip') != ray.util.get_node_ip_address():  # type: ignore[no-untyped-call]  # Ray's function has no annotations
        return f'its process ended; its log on node {facts.get("ip")} may say why'
    log = _log_of(int(facts['pid']))
    if log is not None and (noted := last_words(log)):
        return f'its process ended by {noted}'
    return 'its process was probably killed by SIGKILL: by kill -9, or by the kernel when memory ran out'


def _log_of(pid: int) -> Path | None:
    """Returns the stderr file of a process that Ray started on this node; None if unknown."""
    if not ray.is_initialized():  # to ask a Ray that has ended would start another one
        return None
    # whatever Ray raises when it is ending itself: a cause less is no failure
    with contextlib.suppress(Exception):
        probe(ray.get_runtime_context().gcs_address, '')  # without its head node, Ray would wait for a minute
        here = ray.get_runtime_context().get_node_id()
        socket = next(node['RayletSocketName'] for node in ray.nodes() if node['NodeID'] == here)  # type: ignore[no-untyped-call]  # Ray's function has no annotations
        logs = Path(socket).parents[1].glob(f'logs/worker-*-{pid}.err')
        return max(logs, key=lambda log: log.stat().st_mtime, default=None)
    return None
