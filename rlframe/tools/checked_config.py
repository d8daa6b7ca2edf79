"""The text of ``rlframe check-config``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlframe.scores import exact_text
from rlframe.tools.layout import row

Facts = Mapping[str, Any]
UNITS = ('B', 'KiB', 'MiB', 'GiB', 'TiB')


def text_of(found: Facts, width: int) -> str:
    """Returns the result of ``check_config`` as text of at most ``width`` columns."""
    lines = [f'{found["config"]}: no mistakes']
    for text in found['warnings']:
        lines += row('warning', text, width)
    lines += row('trains', _what(found), width)
    if 'observation_space' in found:
        lines += row('observes', found['observation_space'], width)
        lines += row('acts', found['action_space'], width)
        lines += row('network', _network(found['network']), width)
    lines += row('buffer', _buffer(found['buffer']), width)
    lines += row('ends', _end(found['budget']), width)
    options = found['changed']
    lines += row('options', f'{len(options)} differ from their defaults' + (':' if options else ''), width)
    for key, values in options.items():
        lines.append(f'    {key} = {values["value"]!r} (default: {values["default"]!r})')
    return '\n'.join(lines)


def _what(found: Facts) -> str:
    envs = f'{found["env_num"]} envs, manager {found["env_manager"]}' if found['env_num'] else 'no envs'
    where = '' if found['backend'] == 'local' else f', backend {found["backend"]}'
    mode = ' in parallel mode' if found['mode'] == 'parallel' else ''
    return f'{found["policy"]} on {found["env"]}{mode}; collector {found["collector"]} with {envs}{where}'


def _network(network: Facts | None) -> str:
    if network is None:
        return 'custom; its size is known once it is created'
    sizes = ', '.join(f'{key} {value}' for key, value in network['sizes'].items())
    return f'{network["class"]}: {network["parameters"]:,} parameters{f" ({sizes})" if sizes else ""}'


def _buffer(buffer: Facts | None) -> str:
    if buffer is None:
        return 'none: it learns from fresh data'
    if buffer['size'] is None:
        return str(buffer['type'])
    size = f'{buffer["type"]}: {buffer["size"]:,} items'
    return size if buffer['bytes'] is None else f'{size}, about {_bytes(buffer["bytes"])}'


def _bytes(number: float) -> str:
    unit = 0
    while number >= 1000 and unit < len(UNITS) - 1:
        number, unit = number / 1024, unit + 1
    return f'{number:.3g} {UNITS[unit]}'


def _end(budget: Facts) -> str:
    limits = [
        f'after {budget[key]:,} {unit}'
        for key, unit in (('max_env_step', 'env steps'), ('max_train_iter', 'train iterations'))
        if budget[key] is not None
    ]
    if budget['stop_value'] is not None:
        limits.append(f'at a mean return of {exact_text(budget["stop_value"])}')
    return (
        ', or '.join(limits)
        if limits
        else 'never by itself: set max_env_step, max_train_iter or env.stop_value'
    )
