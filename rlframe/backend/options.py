"""Options of collection and evaluation in workers, whatever the place, and their rules."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlframe.backend.base import COLLECTOR, EVALUATOR, OVERLAP
from rlframe.errors import ConfigError
from rlframe.registry import POLICY_REGISTRY
from rlframe.utils.every import seconds
from rlframe.utils.field import Options, Section, fields_of, option


class StartConfig(Section):
    """How workers are started, and how often they are replaced."""

    start_timeout: float = seconds(120.0, 'longest time for a worker and its envs to start')
    max_actor_restarts: int = option(
        5,
        range='[0, inf)',
        unit='restarts',
        doc='most restarts of all workers together within restart_window; one more loss ends the run',
        may_change=True,
    )
    restart_window: float = seconds(600.0, 'period in which max_actor_restarts counts')


class WorkersConfig(StartConfig):
    """Options of a collector in several workers, under ``policy.collect.collector``."""

    collect_print_freq: int | str | None  # of the collector itself
    num_collectors: int = option(
        1,
        range='[1, inf)',
        unit='collectors',
        doc='number of workers that collect, each in env.collector_env_num envs',
        may_change=True,
    )
    sync: bool = option(
        True,
        doc='whether each round waits for the share of every actor; if not, it takes the first results that are ready',
        may_change=True,
    )
    overlap: int = OVERLAP
    update_after_each_batch: bool = option(
        True, doc='whether each request brings the newest weights', may_change=True
    )
    max_weight_update_interval: int = option(
        -1,
        range='[-1, inf)',
        unit='batches',
        doc='batches of one actor after which it gets the newest weights in any case; -1: no limit',
        may_change=True,
    )
    max_in_flight: int = option(
        1,
        range='[1, inf)',
        unit='requests',
        doc='requests that an actor holds at a time, without sync',
        may_change=True,
    )
    max_staleness: int | None = option(
        None,
        range='[0, inf)',
        unit='versions of the weights',
        doc='greatest age of the weights of a batch, when its collection begins or by waiting; older batches are discarded and counted;'
        ' None: no limit',
        may_change=True,
    )
    collect_timeout: float = seconds(
        600.0, 'longest time for an actor to answer a request; then it is replaced'
    )


class LaterConfig(StartConfig):
    """Options of an evaluator in a worker, under ``policy.eval.evaluator``."""

    max_pending: int = option(
        2,
        range='[1, inf)',
        unit='evaluations',
        doc='evaluations that the worker may be behind before training waits for it',
        may_change=True,
    )
    eval_timeout: float = seconds(
        1800.0, 'longest time for an evaluation; then its worker is replaced and the evaluation repeated'
    )


WORKER_OPTIONS, LATER_OPTIONS = fields_of(WorkersConfig), fields_of(LaterConfig)


def lag_error(policy: type[Any], where: str) -> ConfigError | None:
    """Returns the error about actors that collect while the weights change, for a policy that learns from fresh data.

    Args:
        policy: Its class.
        where: The option that lets them do so.

    Returns:
        None if the policy corrects for the age of the weights; else an error with the policies that do.
    """
    if getattr(policy, 'corrects_lag', False):
        return None
    names = [
        name for name in POLICY_REGISTRY.names() if getattr(POLICY_REGISTRY.get(name), 'corrects_lag', False)
    ]
    return ConfigError(
        f'without sync, actors collect while the weights change, and {policy.__name__} learns from fresh data only',
        where=where,
        got=False,
        expected='True',
        remedy=f'These policies correct for the age of the weights: {", ".join(names)}.',
    )


def collector_errors(known: Mapping[str, Any]) -> list[ConfigError]:
    """Returns the mistakes of a config that collects in workers, by its dotted keys and their values."""
    sync = known.get(f'{COLLECTOR}.sync', True)
    errors = []
    if known.get(f'{COLLECTOR}.overlap') and not sync:
        errors.append(
            ConfigError(
                'without sync, actors collect all the time: there is no round to begin ahead',
                where=f'{COLLECTOR}.overlap',
                got=1,
                expected='0, or sync=True',
            )
        )
    if known.get(f'{COLLECTOR}.type') == 'dataset':
        errors.append(stays_here(known, COLLECTOR, 'recorded data are read in this process'))
    if known.get('policy.on_policy') and not sync:
        lag = lag_error(POLICY_REGISTRY.get(known['policy.type']), f'{COLLECTOR}.sync')
        errors += [lag] if lag else []
    return errors


def evaluator_errors(known: Mapping[str, Any]) -> list[ConfigError]:
    """Returns the mistakes of a config that evaluates in a worker."""
    is_data = known.get(f'{EVALUATOR}.type') == 'metric'
    return [stays_here(known, EVALUATOR, 'recorded data are read in this process')] if is_data else []


def stays_here(known: Mapping[str, Any], section: str, what: str) -> ConfigError:
    """Returns the error of a component that must stay in the process of the run."""
    where = f'{section}.backend'
    return ConfigError(f'{what}, not in workers', where=where, got=known.get(where), expected="'local'")


def without_backend_options(cfg: Mapping[str, Any], declared: Options) -> dict[str, Any]:
    """Returns the options of a component alone, without those of where it runs."""
    return {name: value for name, value in cfg.items() if name != 'backend' and name not in declared}
