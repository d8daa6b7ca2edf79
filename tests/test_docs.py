"""What the documentation shows works: commands, snippets, examples, configs, and the reference of options."""

from __future__ import annotations

import importlib
import importlib.util
import json
import re
import runpy
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from doc_blocks import blocks_of
from runs import ROOT

from rlframe.entry.__main__ import main
from rlframe.entry.verbs import VERBS
from rlframe.registry import REGISTRIES

README = (ROOT / 'README.md').read_text(encoding='utf-8')
EXAMPLES = ROOT / 'docs' / 'examples'
SETUP = 'python3 -m venv .venv && . .venv/bin/activate && pip install -c constraints.txt -e'
RUN = f'{SETUP} . && python -m rlframe.entry -c configs/cartpole_dqn.py'
TEST = f"{SETUP} '.[test]' && python -m pytest -m 'not slow and not ray'"
QUICK = ['--env-step', '200', 'env.n_evaluator_episode=2', 'env.evaluator_env_num=2']


@pytest.fixture(autouse=True)
def cwd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty working directory; what examples register and import is forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, 'path', [str(EXAMPLES), str(ROOT / 'docs'), *sys.path])
    yield tmp_path
    own = [file.stem for file in EXAMPLES.glob('*.py')]
    for registry in REGISTRIES.values():
        for name in [name for name, cls in registry._classes.items() if cls.__module__ in own]:
            del registry._classes[name]
    for name in own:
        sys.modules.pop(name, None)


def blocks(language: str) -> list[str]:
    return re.findall(rf'^```{language}\n(.*?)^```$', README, re.MULTILINE | re.DOTALL)


def train(config: str, *words: str) -> Path:
    """Trains a little and returns the run folder."""
    before = set(Path.cwd().iterdir())
    assert main(['-c', config, *QUICK, *words]) == 0
    written = set(Path.cwd().iterdir()) - before
    (folder,) = {
        path for path in written if path.name != 'MUJOCO_LOG.TXT'
    }  # nothing else but MuJoCo's own log
    return folder


def score(folder: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, float]:
    capsys.readouterr()
    assert main(['eval', str(folder), '--episodes', '2', '--json']) == 0
    result: dict[str, float] = json.loads(capsys.readouterr().out)
    return result


def test_readme_has_the_two_commands_and_ci_runs_the_second() -> None:
    assert blocks('bash')[:2] == [RUN + '\n', TEST + '\n']
    script = (ROOT / '.ci' / 'run').read_text(encoding='utf-8')
    (extraction,) = re.findall(r'^command=.*$', script, re.MULTILINE)
    shown = subprocess.run(
        ['bash', '-euo', 'pipefail', '-c', f'{extraction}; echo "$command"'],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert shown.stdout == TEST + '\n'
    lines = script.splitlines()
    (runs,) = [number for number, line in enumerate(lines) if 'bash -euo pipefail -c "$command"' in line]
    assert lines.index('rm -rf .venv') < runs


def test_examples_are_shown_as_they_are() -> None:
    shown = {block.text for page in PAGES for block in blocks_of(page)}
    hidden = [file.name for file in EXAMPLES.glob('*.py') if file.read_text(encoding='utf-8') not in shown]
    assert not hidden, 'the block of a page and the file in docs/examples differ'


PAGES = sorted([*ROOT.glob('*.md'), *ROOT.glob('docs/**/*.md')])


def anchors(page: Path) -> set[str]:
    """Returns the anchors that GitHub gives to the headings of a page."""
    headings = re.findall(r'^#+ (.*)$', page.read_text(encoding='utf-8'), re.MULTILINE)
    return {re.sub(r'[^\w\- ]', '', heading.lower()).replace(' ', '-') for heading in headings}


@pytest.mark.parametrize('page', PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_point_to_files_and_headings(page: Path) -> None:
    for link, anchor in re.findall(
        r'\]\((?!https?:)([^)#\s]*)(?:#([^)]*))?\)', page.read_text(encoding='utf-8')
    ):
        target = page.parent / link if link else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), f'{link}#{anchor}'


OFTEN = {'cartpole_dqn', 'cartpole_ppo'}
"""The configs that are tried every time, and repeated from what the run wrote."""
CONFIGS = [
    pytest.param(
        file,
        id=file.stem,
        marks=[]
        if file.stem in OFTEN
        else [pytest.mark.ray if "backend='ray'" in file.read_text(encoding='utf-8') else pytest.mark.slow],
    )
    for file in sorted((ROOT / 'configs').glob('*.py'))
    if 'comm_collector' not in file.read_text(encoding='utf-8')  # parallel mode is not repeated exactly
]


@pytest.mark.parametrize('file', CONFIGS)
def test_every_config_trains_and_some_are_scored_and_repeated(
    file: Path, cwd: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if main(['check-config', str(file)]) and 'pip install' in capsys.readouterr().err:
        pytest.skip('its env is not installed')
    quicker = []
    if 'ppo' in file.stem and 'offpolicy' not in file.stem:
        quicker = ['policy.learn.epoch_per_collect=1']
    if file.stem.startswith(('pong', 'breakout')):
        quicker += ['env.max_frames=400', 'env.collector_env_num=2', 'policy.random_collect_size=0']
    if file.stem == 'spread_ppo':  # a game of three agents is three rows
        quicker += ['env.n_evaluator_episode=3', 'env.evaluator_env_num=3']
    folder = train(str(file), *quicker)
    assert folder.name == f'{file.stem}_seed0'
    for name in ('config.json', 'metrics.jsonl', 'log.txt', 'tensorboard', 'ckpt/best', 'ckpt/latest'):
        assert (folder / name).exists(), name
    if file.stem not in OFTEN:
        return
    first = score(folder, capsys)
    assert first['episodes'] == 2 and first['min'] <= first['mean'] <= first['max']
    again = train(str(folder / 'total_config.py'))
    assert again.name == f'{file.stem}_seed0_1'
    assert score(again, capsys) | {'checkpoint': 0} == first | {'checkpoint': 0}


def test_examples_train_together_and_are_scored(cwd: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = train(str(EXAMPLES / 'cartpole_extended.py'))
    assert score(folder, capsys)['episodes'] == 2
    log = (folder / 'log.txt').read_text(encoding='utf-8')
    assert 'BoltzmannDQNPolicy' in log and 'divergence(after_iter, priority 10)' in log
    assert "'mean_age': 2000" in (folder / 'total_config.py').read_text(encoding='utf-8')


def test_example_hook_stops_when_the_loss_is_out_of_bounds(cwd: Path) -> None:
    with pytest.raises(ArithmeticError, match=r'the loss is .* at train_iter \d+') as caught:
        train(
            str(EXAMPLES / 'cartpole_extended.py'),
            "policy.learn.learner.hook={'divergence': {'type': 'stop_on_divergence', 'limit': 0.0}}",
        )
    assert 'divergence(after_iter, priority 10)' in str(caught.value.__notes__)


def test_example_buffer_prefers_fresh_data() -> None:
    import numpy as np
    from recent_buffer import RecentReplayBuffer

    buffer = RecentReplayBuffer({'mean_age': 50})
    buffer.push([{'number': np.float32(i)} for i in range(5000)], 0)
    numbers = np.asarray(buffer.sample(2000, 0)['number'])
    assert numbers.max() == 4999 and 40 < 4999 - numbers.mean() < 60


@pytest.mark.slow
def test_example_of_parallel_mode_solves_its_env(cwd: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = runpy.run_path(str(EXAMPLES / 'parallel_in_one_process.py'))
    coordinator = names['coordinator']
    assert (
        coordinator.commander.best >= 100 and coordinator.received == coordinator.pushed + coordinator.dropped
    )
    assert 'env steps' in capsys.readouterr().out and not list(cwd.iterdir())


def docs_script(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, ROOT / 'docs' / f'{name}.py')
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_reference_of_options_is_up_to_date() -> None:
    written = (ROOT / 'docs' / 'config.md').read_text(encoding='utf-8')
    reference = docs_script('make_config_reference').reference()
    assert reference == written, 'run: python docs/make_config_reference.py'


def test_page_of_algorithms_is_up_to_date() -> None:
    script = docs_script('make_algorithms')
    written = (ROOT / 'docs' / 'algorithms.md').read_text(encoding='utf-8')
    assert script.page() == written, 'run: python docs/make_algorithms.py'


def test_results_and_first_lines_of_configs_are_what_was_measured() -> None:
    page = docs_script('results_page')
    records = docs_script('results_rows')
    runs, rows = records.read_runs(), records.read_rows()
    written = (ROOT / 'docs' / 'results.md').read_text(encoding='utf-8')
    assert page.page(runs, rows) == written, 'run: python docs/make_results.py'
    for name, first in page.first_lines(runs, rows).items():
        line = (ROOT / 'configs' / f'{name}.py').read_text(encoding='utf-8').split('\n')[0]
        assert line == first, 'run: python docs/make_results.py'


def test_page_about_gpus_is_what_was_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / 'benchmarks')
    script = importlib.import_module('gpu')
    written = script.PAGE.read_text(encoding='utf-8')
    assert script.page(script.Files(script.RESULTS, script.PAGE).read()) == written, (
        'run: python benchmarks/gpu.py --report'
    )
    assert script.RESULTS.exists() != ('Nothing was measured on a GPU yet' in written)


def test_page_of_the_command_line_lists_every_verb_with_its_help() -> None:
    page = (ROOT / 'docs' / 'command_line.md').read_text(encoding='utf-8')
    listed = re.findall(r'^\| `([\w-]+)` \| (.*) \|$', page, re.MULTILINE)
    assert listed[: len(VERBS)] == [(name, verb.help) for name, verb in VERBS.items()]
