"""The text of ``rlframe check-env``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rlframe.scores import exact_text
from rlframe.tools.layout import row, wrapped

Facts = Mapping[str, Any]


def text_of(report: Facts, width: int) -> str:
    """Returns the report of ``check_env`` as text of at most ``width`` columns."""
    counts = {
        kind: sum(finding['severity'] == kind for finding in report['findings'])
        for kind in ('error', 'warning')
    }
    told = ', '.join(f'{count} {kind}{"s" if count > 1 else ""}' for kind, count in counts.items() if count)
    lines = [f'{report["env"]}: {told or "no problems"}']
    for finding in report['findings']:
        lines += ['', *_finding(finding, width)]
    lines.append('')
    done = [name for name, result in report['checks'].items() if result == 'passed']
    lines += row('passed', ', '.join(done) or 'nothing', width)
    left = [name for name, result in report['checks'].items() if result not in ('passed', 'failed')]
    failed = [name for name, result in report['checks'].items() if result == 'failed']
    lines += row('failed', ', '.join(failed), width) if failed else []
    lines += row('skipped', f'{", ".join(left)}: they need a check that failed', width) if left else []
    lines += _facts(report['facts'], width)
    return '\n'.join([*lines, *row('next', report['next'], width)])


def _finding(finding: Facts, width: int) -> list[str]:
    lines = wrapped(f'{finding["severity"]}: {finding["seen"]}', 0, width)
    if finding['where']:
        file, _, line = finding['where'].rpartition(':')
        path = Path(file)
        shown = path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
        lines.append(f'  at {shown}:{line}')
    return lines + wrapped(finding['fix'], 2, width)


def _facts(facts: Facts, width: int) -> list[str]:
    lines = []
    for label, name in (('observes', 'observation_space'), ('acts', 'action_space')):
        if name in facts:
            lines += row(label, facts[name], width)
    if 'max_episode_steps' in facts:
        limit, threshold = facts['max_episode_steps'], facts['reward_threshold']
        text = f'at most {limit:,} steps' if limit else 'no time limit'
        lines += row(
            'episodes',
            f'{text}; '
            + ('no reward threshold' if threshold is None else f'solved at {exact_text(threshold)}'),
            width,
        )
    random = facts.get('random')
    if random and random['episodes']:
        many = f', mean of {random["episodes"]} episodes' if random['episodes'] > 1 else ''
        text = f'return {random["mean_return"]:.4g} in {random["mean_length"]:.4g} steps{many}'
        lines += row('at random', text, width)
    if speed := facts.get('speed'):
        reset = '' if speed['reset_ms'] is None else f'; a reset takes {speed["reset_ms"]:.2g} ms'
        text = f'{speed["steps_per_second"]:,.0f} steps/s in one process{reset}; '
        lines += row('speed', text + f'converting observations adds {speed["conversion_share"]:.1%}', width)
    for label in ('saving', 'autoreset'):
        if label in facts:
            lines += row(label, facts[label], width)
    if policies := facts.get('policies'):
        lines += row('policies', ', '.join(policies), width)
    return lines
