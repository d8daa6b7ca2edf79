"""The text of ``rlframe explain``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rlframe.tools.explain import HERE
from rlframe.tools.layout import row, wrapped

MOST_IN_FULL = 3
"""Options explained in full; of more, each gets one or two lines."""
MOST_NAMES = 8
"""Names of other frameworks that are shown."""
Facts = Mapping[str, Any]


def text_of(found: Facts, width: int) -> str:
    """Returns the result of ``explain`` as text of at most ``width`` columns, keys excepted."""
    if found['component'] is not None:
        return '\n'.join(_component(found['component'], width))
    options, lines = found['options'], []
    if found['how'] == 'synonym':
        lines += [f'{found["asked"]} is called {" or ".join(o["key"] for o in options)} here.', '']
    if found['how'] == 'section':
        lines += [f'{found["asked"]} is a section of {len(options)} options:', '']
    if len(options) > MOST_IN_FULL:
        for option in options:
            lines += _short(option, width)
        lines += ['', f'In full: rlframe explain {options[0]["key"]}']
    else:
        for i, option in enumerate(options):
            lines += [*([''] if i else []), *_full(option, width)]
    return '\n'.join(lines)


def _full(option: Facts, width: int) -> list[str]:
    lines = [option['key']]
    declared = option['declared']
    for group in declared:
        if len(declared) > 1:
            who = [name for default in group['defaults'] for name in default['components']]
            lines += ['', *wrapped(_names(who) + ':', 2, width)]
        lines += wrapped(group['doc'], 2, width)
        lines += row('values', group['expected'], width)
        lines += _defaults(group['defaults'], width)
        resume = 'may change' if group['may_change'] else 'must stay as it was'
        lines += row('on resume', resume, width)
        if group['reaches']:
            lines += row(
                'reaches', f'{group["reaches"]}: a foreign config may not set it unless it is trusted', width
            )
    if 'here' in option:
        lines += ['', *row('here', _here(option), width)]
    if names := option['also_called']:
        more = f' and {len(names) - MOST_NAMES} more' if len(names) > MOST_NAMES else ''
        lines += row('elsewhere', 'called ' + ', '.join(names[:MOST_NAMES]) + more, width)
    return [*lines, *row('set it', _example(option), width)]


def _here(option: Facts) -> str:
    here = option['here']
    if here is None:
        return 'this config has no such option; the components it names do not declare it'
    is_default = here['value'] == here['default']
    default = '' if is_default else f' (default: {here["default"]!r})'
    return f'{here["value"]!r}, {here["from"]}{default}'


def _example(option: Facts) -> str:
    value = option['here']['value'] if option.get('here') else option['declared'][0]['defaults'][0]['value']
    is_plain = isinstance(value, bool | int | float) or (isinstance(value, str) and value.isidentifier())
    config = option['here']['config'] if option.get('here') else 'CONFIG'
    return f'rlframe train -c {config} {option["key"]}={value if is_plain else "VALUE"}'


def _defaults(defaults: Sequence[Facts], width: int) -> list[str]:
    shown = ['required' if default['required'] else repr(default['value']) for default in defaults]
    if len(defaults) == 1:
        who = defaults[0]['components']
        return row('default', shown[0] if who == [HERE] else f'{shown[0]}  ({_names(who)})', width)
    column = min(max(map(len, shown)), 20) + 2
    lines = []
    for i, (text, default) in enumerate(zip(shown, defaults, strict=True)):
        lines += row('' if i else 'default', f'{text:{column}}{_names(default["components"])}', width, column)
    return lines


def _names(components: Sequence[str]) -> str:
    """Returns components, those of a kind together: ``policy dqn, ppo; learner base``."""
    kinds: dict[str, list[str]] = {}
    for component in components:
        kind, _, name = component.partition(' ')
        kinds.setdefault(kind, []).append(name)
    return '; '.join(f'{kind} {", ".join(names)}'.rstrip() for kind, names in kinds.items())


def _short(option: Facts, width: int) -> list[str]:
    if option.get('here'):
        value = f'= {option["here"]["value"]!r}, {option["here"]["from"]}'
    else:
        defaults = [default for group in option['declared'] for default in group['defaults']]
        texts = ['(required)' if default['required'] else f'= {default["value"]!r}' for default in defaults]
        distinct = list(dict.fromkeys(texts))
        value = distinct[0] if len(distinct) == 1 else f'{len(distinct)} defaults, by component'
    doc = next((group['doc'] for group in option['declared'] if group['doc']), '')
    return [f'{option["key"]} {value}', *wrapped(doc, 4, width)]


def _component(component: Facts, width: int) -> list[str]:
    kind, name = component['kind'], component['name']
    lines = [f'{kind} {name!r} ({component["class"]})', *wrapped(component['doc'], 2, width)]
    if component['section']:
        lines += row('section', component['section'], width)
        lines += row('set it', f'{component["section"]}.type={name}', width)
    if not component['options']:
        own = (
            ' Policies declare those of their networks: rlframe explain policy.model'
            if kind == 'model'
            else ''
        )
        return [*lines, '', *wrapped(f'It declares no options of its own.{own}', 0, width)]
    lines.append('')
    for option in component['options']:
        lines.append(f'{option["key"]} = {option["default"]!r}')
        lines += wrapped(f'{option["expected"]}: {option["doc"]}'.rstrip(': '), 4, width)
    return lines
