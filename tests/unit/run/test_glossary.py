"""docs/logging.md explains every tag that rlframe writes, and none that it does not write."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fakes import config_pair
from runs import ROOT

from rlframe import config
from rlframe.pipeline import SerialPipeline
from rlframe.registry import EVAL_METRIC_REGISTRY, LOGGER_REGISTRY
from rlframe.run.metric_writer import MetricWriter
from rlframe.worker.evaluator.eval_metric import evaluation_metrics

KINDS = 'rollout|eval|train|buffer|time|ray|parallel|league'
TAG = re.compile(rf'(?:{KINDS})/[\w{{}}]+(?:/[\w{{}}]+)?')
WILD = re.compile(r'NAME|PLAYER|SEAT|{}')
NO_WRITERS = ('app', 'tune', 'hooks', 'display')
"""Rooms that read tags, and hooks, whose tags their own page explains."""
BUILT = {
    'train/': 'q_value target_q_value policy_loss value_loss entropy approx_kl clip_fraction actor_loss critic_loss alpha'
    ' total_loss learning_rate skipped_share learner_restarts',
    'time/': 'collect learn evaluate',
    'eval/': 'mean_reward std_reward min_reward max_reward median_reward iqm_reward mean_ep_length success_rate episodes'
    ' cut_episodes win_rate draw_rate loss_rate best_NAME info/NAME',
}
"""Tags that the source puts together from two parts."""


def glossary() -> set[str]:
    text = (ROOT / 'docs' / 'logging.md').read_text(encoding='utf-8')
    return set(re.findall(rf'^\| `((?:{KINDS})/[^`]+)` \|', text, re.MULTILINE))


def literals(path: Path) -> Iterator[str]:
    """Yields the texts in a file, with ``{}`` for what is filled in."""
    text = path.read_text(encoding='utf-8')
    if not TAG.search(text):
        return
    tree = ast.parse(text)
    inner = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield ''.join(str(part.value) if isinstance(part, ast.Constant) else '{}' for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inner:
            yield node.value


def written() -> set[str]:
    """Returns the tags in the source of the rooms that write metrics."""
    files = [path for path in (ROOT / 'rlframe').rglob('*.py') if not {*NO_WRITERS} & {*path.parts}]
    return {text for path in files for text in literals(path) if TAG.fullmatch(text)}


def shape(tag: str) -> str:
    return WILD.sub('{}', tag)


def test_glossary_has_the_tags_of_the_source_and_no_others() -> None:
    whole = {shape(tag) for tag in written()}
    built = {f'{start}{name}' for start, names in BUILT.items() for name in names.split()}
    fillers = {f'{start}{{}}' for start in BUILT} | {'eval/{}_rate', 'eval/best_'}
    explained = {shape(tag) for tag in glossary()}
    assert explained - {shape(tag) for tag in built} - whole == set(), 'in the glossary only'
    assert whole - fillers - explained - {'eval/best_mean_reward'} == set(), 'in the source only'


def test_examples_of_the_page_work(tmp_path: Path) -> None:
    text = (ROOT / 'docs' / 'logging.md').read_text(encoding='utf-8')
    classes = [block for block in re.findall(r'```python\n(.*?)```', text, re.DOTALL) if 'class ' in block]
    try:
        for block in classes:
            assert len(block[block.index('@') :].splitlines()) <= 15
            exec(block, {'__name__': __name__})
        writer = MetricWriter(tmp_path, loggers=['best'])
        for step, score in enumerate((1.0, 0.5, 2.0)):
            writer.write({'eval/mean_reward': score}, step)
        writer.close()
        assert (tmp_path / 'best.txt').read_text() == '0 1.0\n2 2.0\n'
        info = {'eval_episode_return': list(range(20))}
        assert evaluation_metrics(info, 1.0, ['worst_tenth'])['eval/worst_tenth'] == 0.5
    finally:
        LOGGER_REGISTRY._classes.pop('best', None)
        EVAL_METRIC_REGISTRY._classes.pop('worst_tenth', None)


@pytest.mark.slow
@pytest.mark.parametrize(
    ('policy', 'env_id', 'sections'),
    [
        ('dqn', 'CartPole-v1', {'buffer': {'type': 'advanced'}, 'policy_': {'priority': True}}),
        ('ppo', 'CartPole-v1', {}),
    ],
)
def test_glossary_explains_the_tags_of_runs(
    policy: str, env_id: str, sections: dict[str, Any], cwd: Path
) -> None:
    pair = config_pair(policy, env_id, loggers=[], **sections)
    overrides = ['policy.eval.evaluator.metrics=[median,iqm,length,success_rate]']
    if policy != 'ppo':
        overrides += ['replay_buffer.type=advanced']
    with SerialPipeline(config.compile_config(*pair, overrides=overrides, seed=1)) as pipeline:
        for _ in range(8 if policy == 'ppo' else 20):
            pipeline.step()
        lines = (pipeline.folder / 'metrics.jsonl').read_text().splitlines()
    tags = {tag for line in lines for tag in json.loads(line) if '/' in tag}
    known = [re.compile(re.sub('NAME|PLAYER|SEAT', r'.+', tag)) for tag in glossary()]
    assert [tag for tag in tags if not any(each.fullmatch(tag) for each in known)] == []
    assert {'eval/mean_reward', 'eval/iqm_reward', 'train/total_loss', 'rollout/ep_rew_mean'} <= tags
