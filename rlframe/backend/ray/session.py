"""The Ray of this process: uses a running one, connects to a known address, or starts one and ends it later."""

from __future__ import annotations

import importlib
import logging
import os
import re
import signal
import socket
import sys
import textwrap
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rlframe.errors import ConfigError, MissingDependencyError, ResourceError
from rlframe.utils.lazy import LazyModule

PROBE_SECONDS = 2.0
"""Longest wait for a connection to the port of a cluster."""
GREETING_SECONDS = 10.0
"""Longest wait for the first bytes from there."""
GREETING = b'\x04'
"""The fourth byte from a gRPC server, such as Ray's: the type of HTTP/2's SETTINGS frame, which it sends to each new connection."""
ADVICE = ' Some common causes include: '
"""Begins what Ray adds to the cause of every loss."""
ray = LazyModule('ray')
COLOUR = r'\[[0-9;]*m'
LONGEST_CAUSE = 400
"""Maximum length of a line about a lost actor, as Ray adds advice for every case."""
logger = logging.getLogger('rlframe.ray')
Resources = Mapping[str, float]
"""Amounts under Ray's names of them: ``{'CPU': 1.0, 'GPU': 0.0}``."""
FREE_SECONDS = 5.0
"""Longest wait for resources to become free: those of an actor do so about a second after its end."""
STORE_BYTES = 2 * 2**30
"""Default limit for the object store of a Ray that is started here."""
REMEDY = 'Is there enough memory? Do the envs answer? The log files of the Ray session say more.'
"""What to do about losses of actors."""


def probe(address: str, where: str) -> None:
    """Checks that a Ray answers at the address of a cluster, because Ray itself would wait for minutes.

    Args:
        address: host:port.
        where: Config key of the address, for errors.

    Raises:
        ConfigError: If the address has another form.
        ResourceError: If no Ray answers.
    """
    host, _, port = address.rpartition(':')
    if '://' in address or not host or not port.isdigit():
        raise ConfigError(
            'the address of a Ray cluster is host:port',
            where=where,
            got=address,
            expected="'local', 'auto' or for example '10.0.0.1:6379'",
            remedy='Ray Client (ray://) is not supported: start the run on a node of the cluster.',
        )
    try:
        with socket.create_connection((host.strip('[]'), int(port)), PROBE_SECONDS) as connection:
            connection.settimeout(GREETING_SECONDS)
            is_encrypted = os.environ.get('RAY_USE_TLS', '0').lower() in ('1', 'true')
            if not is_encrypted and connection.makefile('rb').read(4)[3:] != GREETING:
                raise ConnectionError('what listens there is another program')
    except (OSError, OverflowError) as error:
        raise ResourceError(
            f'no Ray answers at {address}: {error}',
            where=where,
            got=address,
            expected="the address of a running Ray, or 'local'",
            remedy='It may come from RAY_ADDRESS. `ray start --head` starts a cluster and prints its address.',
        ) from error


def cause_of(error: Exception) -> str:
    """Returns the cause of a loss in Ray's words: the signal in the worker's log, the first and the last line of the message."""
    lines = [line.strip() for line in re.sub(COLOUR, '', str(error)).splitlines() if line.strip()]
    lines = [line.partition(ADVICE)[0] for line in lines]
    told = [textwrap.shorten(line, LONGEST_CAUSE) for line in dict.fromkeys([*lines[:1], *lines[-1:]])]
    return ' '.join([f'{type(error).__name__}:', *_signal_of(lines), *told])


def _signal_of(lines: Sequence[str]) -> list[str]:
    """Returns the signal that ended a dead worker on this machine; Ray knows it, or an exit code, in no other place."""
    pids = [line.removeprefix('pid: ') for line in lines if line.startswith('pid: ')]
    if not pids or f'ip: {ray.util.get_node_ip_address()}' not in lines:
        return []
    logs = Path(ray._private.worker._global_node.get_logs_dir_path()).glob(f'worker-*-{pids[0]}.err')
    text = '\n'.join(path.read_text(encoding='utf-8', errors='replace') for path in logs)
    found = re.search(r'\*\*\* (SIG\w+) received', text)
    return [f'killed by {found[1]}.' if found else 'it exited, or was killed; out of memory?']


class _Ours:
    """The Ray that this module started or connected to: there is one Ray per process, so one of this."""

    holders = 0
    """Open sessions."""
    job: str | None = None
    """Id that Ray gave this process; a different one means that Ray was shut down and started again."""
    reserved: Counter[str] = Counter()
    """Resources reserved by all open sessions, as Ray reports those of a starting actor too late."""


class RaySession:
    """A use of this process's Ray; closing the last session ends a Ray that ``connect`` started.

    Args:
        own: Whether ``connect`` started Ray.
    """

    def __init__(self, own: bool) -> None:
        self.own = own
        """Whether this module started Ray, so that the end of the last session ends Ray."""
        self._open = True
        self._reserved: Counter[str] = Counter()

    def require(self, demands: Sequence[Resources], where: str, wait_s: float = FREE_SECONDS) -> None:
        """Reserves the resources of actors with these demands, until ``release`` or ``close``.

        Args:
            demands: Resources that each actor needs.
            where: Config key of the demand, for errors.
            wait_s: Seconds to wait for resources that are being released.

        Raises:
            ResourceError: With the needed and the free amounts; at once if even all resources would not suffice.
        """
        self.check_possible(demands, where)
        limit = time.monotonic() + wait_s
        while lacking := _lacking(demands, _amounts()[1]):
            if time.monotonic() > limit:
                raise self._refusal(demands, lacking, where)
            time.sleep(0.1)
        self._reserved.update(_total(demands))
        _Ours.reserved.update(_total(demands))

    def check_possible(self, demands: Sequence[Resources], where: str) -> None:
        """Checks that all resources, if none were used, suffice for actors with these demands; raises like ``require``."""
        if lacking := _lacking(demands, _amounts()[0]):
            raise self._refusal(demands, lacking, where)

    def _refusal(self, demands: Sequence[Resources], lacking: Iterable[str], where: str) -> ResourceError:
        remedy = 'Use fewer actors, request fewer resources for each, or add nodes to the cluster.'
        return ResourceError(self.needed_and_free(demands, lacking), where=where, remedy=remedy)

    def needed_and_free(self, demands: Sequence[Resources], names: Iterable[str] = ()) -> str:
        """Describes the resources that actors need, and those that are free.

        Args:
            demands: Resources that each actor needs.
            names: The resources to tell; by default, all that are needed.
        """
        kinds = Counter(
            ', '.join(f'{name}: {demand[name]:g}' for name in sorted(demand)) for demand in demands
        )
        needed = ' + '.join(f'{count} x {{{kind}}}' for kind, count in kinds.items())
        free = _amounts()[1]
        total = ray.cluster_resources()
        have = ', '.join(
            f'{name} {max(0.0, free.get(name, 0.0)):g} of {total.get(name, 0.0):g}'
            for name in names or _total(demands)
        )
        return f'actors need {needed}; free: {have} on {len(_nodes())} node(s)'

    def release(self, demands: Sequence[Resources]) -> None:
        """Releases the reservations of actors that no longer exist."""
        self._reserved.subtract(_total(demands))
        _Ours.reserved.subtract(_total(demands))

    def close(self) -> None:
        """Closes the session; may be called twice."""
        if not self._open:
            return
        self._open = False
        _Ours.reserved.subtract(self._reserved)
        if not self.own:
            return
        _Ours.holders -= 1
        if _Ours.holders == 0:
            disconnect()


def connect(ray_init_config: Mapping[str, Any] | None = None, where: str = 'ray_init_config') -> RaySession:
    """Opens a session with the Ray of this process, else with the given cluster, else with a new Ray.

    The cluster's address is ``ray_init_config['address']`` or, if not set, the environment variable ``RAY_ADDRESS``;
    ``'local'`` always starts a new Ray, ``'auto'`` uses the cluster that Ray finds on this machine. Signal handlers are
    not changed.

    Args:
        ray_init_config: Arguments of ``ray.init``; used if Ray is not running yet.
        where: Config key of these arguments, for errors.

    Returns:
        The session, to be closed by the caller.

    Raises:
        MissingDependencyError: If Ray is not installed.
        ResourceError: If no server answers at the address, or a new Ray does not start.
        ConfigError: If ``ray.init`` does not accept these arguments.
    """
    given = dict(ray_init_config or {})
    check_installed(where)
    if ray.is_initialized():
        own = _is_ours()
        if given and not own:
            logger.warning('%s is not used: this process is already connected to Ray', where)
        return _hold() if own else RaySession(False)
    address = _address_of(given)
    given.pop('address', None)
    if address == 'local':
        _init(where, **_defaults_of_a_new_ray(given), **given, address='local')
        return _hold()
    if address != 'auto':
        probe(address, f'{where}.address')
    _init(where, **given, address=address)
    return _hold()


def _address_of(ray_init_config: Mapping[str, Any]) -> str:
    return ray_init_config.get('address') or os.environ.get('RAY_ADDRESS') or 'local'


def is_one_machine(ray_init_config: Mapping[str, Any]) -> bool:
    """Whether actors can only be on this machine: Ray has no other node or, if it is not running, no address is given."""
    if 'ray' in sys.modules and ray.is_initialized():
        return len(_nodes()) == 1
    return _address_of(ray_init_config) == 'local'


def disconnect() -> None:
    """Ends the Ray that ``connect`` started, even if sessions are open; one that ran before is left running."""
    if _is_ours():
        _Ours.holders, _Ours.job = 0, None
        ray.shutdown()


def actor_resources(options: Mapping[str, Any]) -> dict[str, float]:
    """Returns the resources of an actor with these options of ``ray.remote``; by default 1 CPU."""
    found = {
        'CPU': options.get('num_cpus', 1),
        'GPU': options.get('num_gpus', 0),
        'memory': options.get('memory', 0),
    }
    if options.get('accelerator_type'):
        found[f'accelerator_type:{options["accelerator_type"]}'] = 0.001  # so does Ray write it
    return {name: float(size) for name, size in {**found, **options.get('resources', {})}.items() if size}


def check_installed(where: str, module: str = 'ray', package: str = 'ray >= 2.52') -> None:
    """Checks that Ray, or a module of it with what that needs, can be imported.

    Raises:
        MissingDependencyError: If it cannot.
    """
    try:
        importlib.import_module(module)
    except ImportError as error:
        raise MissingDependencyError(
            f'{module.replace(".", " ").title()} cannot be imported: {error}',
            where=where,
            remedy=f"Install it: pip install '{package}'.",
        ) from error


def _is_ours() -> bool:
    ours = _Ours.job is not None and ray.is_initialized()
    return ours and ray.get_runtime_context().get_job_id() == _Ours.job


def _hold() -> RaySession:
    job = ray.get_runtime_context().get_job_id()
    _Ours.holders = _Ours.holders + 1 if job == _Ours.job else 1
    _Ours.job = job
    return RaySession(True)


def _defaults_of_a_new_ray(given: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the default arguments of a new Ray: no dashboard, and a store that leaves memory free."""
    os.environ.setdefault('RAY_USAGE_STATS_ENABLED', '0')
    memory = os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES')
    defaults = {
        'include_dashboard': False,
        'configure_logging': False,
        'object_store_memory': min(int(0.3 * memory), STORE_BYTES),
    }
    return {name: value for name, value in defaults.items() if name not in given}


def _init(where: str, **arguments: Any) -> None:
    try:
        with _kept_signal_handlers():
            ray.init(**arguments)
    except (RuntimeError, ValueError, TypeError) as error:
        raise ConfigError(
            f'ray.init does not accept this: {error}',
            where=where,
            got=arguments,
            expected='arguments of ray.init',
        ) from error
    except ConnectionError as error:
        raise ResourceError(
            f'cannot connect to the Ray at {arguments["address"]}: {error}',
            where=f'{where}.address',
            remedy='A cluster with tokens needs RAY_AUTH_MODE=token and its token in ~/.ray/auth_token.',
        ) from error
    except (Exception, SystemExit) as error:  # Ray ends the process if its servers do not start
        if ray.is_initialized():
            ray.shutdown()
        reason = str(error).partition('\n')[0]
        raise ResourceError(
            f'Ray could not be started: {type(error).__name__}: {reason}',
            where=where,
            remedy='Are ports, shared memory and the temporary folder of Ray (_temp_dir) free to use? Its own logs are in'
            ' /tmp/ray/session_latest/logs.',
        ) from error


@contextmanager
def _kept_signal_handlers() -> Iterator[None]:
    """Restores signal handlers that Ray replaces; without an earlier handler, Ray's stays, which ends Ray in order."""
    before: dict[int, Any] = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            for number, handler in before.items():
                if handler not in (signal.SIG_DFL, None):
                    signal.signal(number, handler)


def _total(demands: Sequence[Resources]) -> Counter[str]:
    total: Counter[str] = Counter()
    for demand in demands:
        total.update(demand)  # type: ignore[arg-type]  # it adds up any numbers
    return total


def _amounts() -> tuple[Resources, Resources]:
    """Returns all resources, and those free for further actors; in a trial of Ray Tune, of the rest of the trial's own."""
    group = ray.util.get_current_placement_group()
    if group is None:
        free = ray.available_resources()
        total = Counter(ray.cluster_resources())
    else:
        total = _total(group.bundle_specs)
        total.subtract(ray.get_runtime_context().get_assigned_resources())
        free = total
    return total, {name: min(size, total[name] - _Ours.reserved[name]) for name, size in free.items()}


def _nodes() -> list[Resources]:
    return [node['Resources'] for node in ray.nodes() if node['Alive']]


def _lacking(demands: Sequence[Resources], free: Resources) -> list[str]:
    """Returns the names of the resources that are insufficient, in total or on every single node."""
    nodes = _nodes()
    lacking = []
    for name, size in _total(demands).items():
        largest_node = max((node.get(name, 0.0) for node in nodes), default=0.0)
        largest_demand = max((demand.get(name, 0.0) for demand in demands), default=0.0)
        if size > free.get(name, 0.0) + 1e-6 or largest_demand > largest_node:
            lacking.append(name)
    return lacking
