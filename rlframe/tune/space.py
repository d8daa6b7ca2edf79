"""Search spaces: domains written as text, and the check that the config accepts their values."""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from ray import tune
from ray.tune.search.sample import Categorical, Domain, Float, Integer, Quantized

from rlframe.config import changeable, full_key, parse_value
from rlframe.config.schema import ExperimentConfig
from rlframe.errors import ConfigError
from rlframe.registry import nearest
from rlframe.tune.trial import OWN_KEYS, TrialBase, compile_trial, trial_options
from rlframe.utils.flat import flat

DOMAINS: dict[str, Any] = {
    'uniform': tune.uniform,
    'quniform': tune.quniform,
    'loguniform': tune.loguniform,
    'qloguniform': tune.qloguniform,
    'randint': tune.randint,
    'qrandint': tune.qrandint,
    'lograndint': tune.lograndint,
    'randn': tune.randn,
    'choice': lambda *values: tune.choice(list(values)),
    'grid': lambda *values: tune.grid_search(list(values)),
}
"""Names of domains in text, and their factories."""

ONE_FORM = 'Set it once: as a dotted key, or nested.'
EXAMPLES = 'loguniform(1e-4,1e-2), uniform(0,1), randint(1,10), choice(32,64,128) or grid(32,64,128)'


def parse_domain(text: str, where: str = '') -> Any:
    """Reads a domain such as ``loguniform(1e-4,1e-2)``.

    Raises:
        ConfigError: If it is not a domain.
    """
    match = re.fullmatch(r'\s*(\w+)\s*\((.*)\)\s*', text, re.DOTALL)
    if match is None:
        raise ConfigError('no domain to search', where=where, got=text, expected=EXAMPLES)
    name, inside = match[1], match[2]
    if name not in DOMAINS:
        hint = nearest(name, DOMAINS)
        raise ConfigError(f'no domain is called {name!r}.{hint}', where=where, got=text, expected=EXAMPLES)
    try:
        values = _values(inside)
        if name in ('choice', 'grid') and len(values) == 1 and isinstance(values[0], list | tuple):
            values = list(values[0])
        if not values and name in ('choice', 'grid'):
            raise ValueError('there is nothing to choose from')
        domain = DOMAINS[name](*values)
        _check_interval(domain)
        return domain
    except (SyntaxError, TypeError, ValueError, ArithmeticError) as error:
        raise ConfigError(f'{text}: {error}', where=where, got=text, expected=EXAMPLES) from error


def _values(inside: str) -> list[Any]:
    """Parses the arguments between the parentheses like values on the command line."""
    call = ast.parse(f'f({inside})', mode='eval').body
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name) or call.keywords:
        raise ValueError('values are separated by commas and have no names')
    if any(isinstance(node, ast.Starred) for node in call.args):
        raise ValueError('values cannot be unpacked')
    return [parse_value(ast.unparse(node)) for node in call.args]


def _check_interval(domain: Any) -> None:
    """Checks that the ends of an interval are numbers, the lower one first; Tune would accept invalid ones."""
    if not isinstance(domain, Float | Integer) or domain.lower is None:
        return
    kinds = int if isinstance(domain, Integer) else int | float
    if not all(isinstance(end, kinds) and not isinstance(end, bool) for end in (domain.lower, domain.upper)):
        raise ValueError(f'its ends are {"ints" if kinds is int else "numbers"}')
    if not (math.isfinite(domain.lower) and math.isfinite(domain.upper) and domain.lower < domain.upper):
        raise ValueError('the lower end is below the upper one')


def flat_space(param_space: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a search space by dotted keys, with the short starts of keys written out.

    Raises:
        ConfigError: If a key is not an option of a run.
    """
    if taken := [key for key in param_space if key in OWN_KEYS]:
        raise ConfigError(
            f'{taken[0]!r} is no option of a run',
            where='param_space',
            remedy='It is an argument of make_tuner.',
        )
    found: dict[str, Any] = {}
    for key, value in trial_options(param_space).items():
        _lay(full_key(key), value, found)
    return found


def _lay(key: str, value: Any, found: dict[str, Any]) -> None:
    """Stores a value under its key; a dict that contains domains is split by its keys."""
    if isinstance(value, Mapping) and not is_searched(value) and _has_domain(value):
        for name, below in value.items():
            _lay(f'{key}.{name}', below, found)
    else:
        if twice := sorted(flat(found).keys() & flat({key: value}).keys()):
            raise ConfigError(f'{twice[0]} is set twice', where='param_space', remedy=ONE_FORM)
        found[key] = value


def _has_domain(value: Any) -> bool:
    return is_searched(value) or (
        isinstance(value, Mapping) and any(_has_domain(below) for below in value.values())
    )


def check_space(base: TrialBase, space: Mapping[str, Any]) -> list[ExperimentConfig]:
    """Checks that the config accepts the ends of every domain.

    Returns:
        The config without the searched options, then with each end of each domain.

    Raises:
        ConfigError: If a key is unknown, or a value in a domain is invalid.
    """
    searched = searched_options(space)
    fixed = {key: value for key, value in space.items() if key not in searched}
    found = [_compiled(base, fixed, 'param_space')]
    known = changeable(found[0])
    for key, domain in searched.items():
        if not ends(domain) and key not in known:
            raise ConfigError(f'{key} is not a known key.{nearest(key, known)}', where='param_space')
        try:
            _check_interval(domain)
        except ValueError as error:
            raise ConfigError(str(error), where=f'param_space[{key!r}]', got=described(domain)) from error
        found += [_with_end(base, fixed, searched, key, value) for value in ends(domain)]
    return found


def searched_options(space: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the options of a space that differ between trials, with their domains."""
    return {key: domain for key, domain in space.items() if is_searched(domain)}


def _with_end(
    base: TrialBase, fixed: Mapping[str, Any], searched: Mapping[str, Any], key: str, value: Any
) -> ExperimentConfig:
    """Compiles the config with one end of one domain, and if that fails, with ends of the others too."""
    others = {other: ends(domain) for other, domain in searched.items() if other != key and ends(domain)}
    choices = [{other: found[i] for other, found in others.items()} for i in (0, -1)]
    for options in choices:
        with suppress(ConfigError):
            return compile_trial({'config': base, **fixed, **options, key: value})
    return _compiled(base, {**fixed, key: value}, f'param_space[{key!r}]')


def _compiled(base: TrialBase, options: Mapping[str, Any], where: str) -> ExperimentConfig:
    try:
        return compile_trial({'config': base, **options})
    except ConfigError as error:
        raise ConfigError(str(error), where=where) from error


def ends(domain: Any) -> list[Any]:
    """Returns the values at the ends of a domain, or all choices of a categorical one."""
    if isinstance(domain, Mapping) and domain.keys() == {'grid_search'}:
        return list(domain['grid_search'])
    if isinstance(domain, Categorical):
        return list(domain.categories)
    if isinstance(domain, Float | Integer):
        is_open = isinstance(domain, Integer) and not isinstance(domain.sampler, Quantized)
        found = [domain.lower, domain.upper - 1 if is_open else domain.upper]
        return [value for value in found if value is not None and math.isfinite(value)]
    return [] if isinstance(domain, Domain) else [domain]


def is_searched(domain: Any) -> bool:
    """Whether more than one value may be drawn."""
    return isinstance(domain, Domain) or (isinstance(domain, Mapping) and 'grid_search' in domain)


def described(domain: Any) -> str:
    """Returns a domain in words."""
    if isinstance(domain, Categorical):
        return f'one of {list(domain.categories)}'
    if isinstance(domain, Mapping):
        return f'each of {list(domain["grid_search"])}'
    if isinstance(domain, Float | Integer):
        last = ')' if isinstance(domain, Integer) else ']'
        return f'in [{domain.lower:g}, {domain.upper:g}{last}'
    return 'drawn by a function'
