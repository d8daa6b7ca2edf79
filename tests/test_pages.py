"""Every command and snippet on the pages under docs works, or says why it cannot run in a test."""

from __future__ import annotations

import importlib
import json
import re
import shlex
import shutil
from pathlib import Path

import pytest
import torch
from doc_blocks import QUICK, ROOT, blocks_of, page_folder, run_blocks

from rlframe.entry.__main__ import main

ELSEWHERE = {
    'docs/backends.md': 'tests/unit/backend/test_backend.py',
    'docs/commander.md': 'tests/unit/worker/test_commander.py',
    'docs/scaling.md': 'tests/ray/test_ray_cluster.py',
    'docs/tuning.md': 'tests/tune/test_tuning_page.py',
}
"""Pages to the tests that run their blocks."""
MOST_NOT_RUN = 31
"""Blocks of all pages that may be marked as not run."""
PAGES = {
    str(page.relative_to(ROOT)): blocks
    for page in sorted([*ROOT.glob('*.md'), *ROOT.glob('docs/**/*.md')])
    if not page.match('course/[0-9]*.md')  # tests/test_course.py runs the lessons
    if (blocks := blocks_of(page)[2 * (page.name == 'README.md') :])  # CI runs the first two
}


@pytest.fixture(scope='module')
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished and exported run of cartpole_dqn, which pages may use."""
    folder = tmp_path_factory.mktemp('pages')
    with pytest.MonkeyPatch.context() as patch, page_folder(folder, patch):
        assert main(['train', '-c', 'cartpole_dqn', *QUICK]) == 0
        assert main(['export', 'cartpole_dqn_seed0']) == 0
    return folder / 'cartpole_dqn_seed0'


@pytest.mark.slow
@pytest.mark.parametrize('page', sorted(PAGES.keys() - ELSEWHERE.keys()))
def test_blocks_of_a_page_run(
    page: str, run_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained_here = any('train -c cartpole_dqn\n' in block.text for block in PAGES[page])
    if not trained_here:
        shutil.copytree(run_folder, tmp_path / run_folder.name, symlinks=True)
    with page_folder(tmp_path, monkeypatch):
        run_blocks(PAGES[page])


TEXTS = {page: page.read_text(encoding='utf-8') for page in [*ROOT.glob('*.md'), *ROOT.glob('docs/**/*.md')]}


def test_few_blocks_are_not_run_and_each_says_why() -> None:
    marked = [(page, block) for page, blocks in PAGES.items() for block in blocks if block.mark == 'not run']
    assert len(marked) <= MOST_NOT_RUN
    for page, block in marked:
        assert len(block.note.split()) >= 3, f'{page}: a reason of at least three words, not {block.note!r}'
        for test in re.findall(r'tests/\S+\.py', block.note):
            assert (ROOT / test).exists(), f'{page}: {test}'


@pytest.mark.slow
@pytest.mark.skipif(torch.cuda.is_available(), reason='there is a GPU')
def test_commands_for_a_gpu_have_valid_configs_and_then_ask_for_one(
    cwd: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    blocks = [
        block for page in PAGES.values() for block in page if block.mark == 'not run' and 'GPU' in block.note
    ]
    lines = [line for block in blocks for line in block.text.replace('\\\n', ' ').splitlines()]
    commands = [shlex.split(line)[1:] for line in lines if line.startswith('rlframe ')]
    assert len(commands) >= 3
    for words in commands:
        assert main([*words, *QUICK]) != 0
        assert 'cuda.is_available()=False' in capsys.readouterr().err, words


def test_pages_that_are_run_elsewhere_are_read_there() -> None:
    for page, test in ELSEWHERE.items():
        assert page in PAGES and Path(page).name in (ROOT / test).read_text(encoding='utf-8')


LONG = {'parallel.md', 'config.md', 'from_ding.md', 'algorithms.md', 'results.md'}
"""Pages of more than 250 lines."""
MOST_WORDS = 68_671
"""Words of all pages under docs that people write: a page that grows is paid for by another."""
MEASURED = re.compile('<!-- table of .*?<!-- end', re.DOTALL)
"""A table on such a page that is written from measured runs."""
WRITTEN_BY_PROGRAMS = {'config.md', 'results.md', 'return_per_hour.md', 'benchmarks.md', 'time_to_return.md'}
"""Pages that are written from the options in the source, and from measured runs."""


def test_docs_are_short() -> None:
    words = {page: len(MEASURED.sub('', text).split()) for page, text in TEXTS.items() if page.parent != ROOT}
    written = sum(count for page, count in words.items() if page.name not in WRITTEN_BY_PROGRAMS)
    assert written <= MOST_WORDS, sorted(words.items(), key=lambda item: -item[1])[:10]
    assert not [page for page in words if page.name not in LONG and len(TEXTS[page].splitlines()) > 250]


RATIOS = {
    ('w1', 'sb3'): 'Stable-Baselines3',
    ('w1', 'tianshou'): 'Tianshou',
    ('w1', 'ding'): 'DI-engine',
    ('w13-impala-0us', 'rllib_impala'): 'RLlib',
}
"""Benchmark and peer to the name in the sentences of README and index."""


@pytest.mark.parametrize('page', ['README.md', 'docs/index.md'])
def test_ratios_are_those_of_the_benchmarks(page: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / 'benchmarks')
    report, cases = importlib.import_module('report'), importlib.import_module('cases').CASES
    runs = json.loads((ROOT / 'benchmarks' / 'results.json').read_text(encoding='utf-8'))
    records = [report.Record(**record) for run in runs for record in run['records']]
    measured = {
        f'{row.ratio.median:.1f}x as fast as {RATIOS[case.name, row.side]}'
        for case in cases
        for row in (report.rows(records, case, {}) if case.workload in ('w1', 'w13') else ())
        if (case.name, row.side) in RATIOS
    }
    text = ' '.join(TEXTS[ROOT / page].split())
    assert set(re.findall(r"\d[\d.]*x as fast as [\w-]+(?='s)", text)) == measured
    assert len(re.findall(r'\d[\d.]*x\b', text)) == len(RATIOS), 'a ratio that this test does not read'


def test_policies_that_the_readme_praises_solve_cartpole_with_every_seed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend(ROOT / 'docs')
    rows = importlib.import_module('results_rows')
    groups = rows.shown(rows.read_runs())
    text = ' '.join(TEXTS[ROOT / 'README.md'].split())
    (names,) = re.findall(r'on CartPole, ([\w, -]+) reach the highest return, 500, with every seed', text)
    for name in re.split(', | and ', names):
        runs = groups[f'cartpole_{name.lower().replace("-", "")}']
        assert len(runs) >= 3 and all(run['mean'] == 500 for run in runs), name


def test_page_of_benchmarks_is_what_was_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / 'benchmarks')
    report = importlib.import_module('report')
    runs = json.loads((ROOT / 'benchmarks' / 'results.json').read_text(encoding='utf-8'))
    pages = report.markdown([report.Run.from_json(run) for run in runs])
    assert pages == TEXTS[ROOT / 'docs' / 'benchmarks.md']


def test_returns_beside_d3rlpy_are_what_was_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / 'benchmarks')
    side = importlib.import_module('offline_returns')
    assert f'{side.START}\n\n{side.table(side.read())}\n\n{side.END}' in TEXTS[side.PAGE]


OUR_FOLDERS = ('rlframe', 'tests', 'benchmarks', 'docs', 'configs')
USERS_FILES = {
    'argparse.py',
    'best_config.py',
    'cartpole_dqn_config.py',
    'cartpole_dqn_config_rlframe.py',
    'growing_rounds.py',
    'rlframe.py',
    'rlframe/trust.key',
    'thread_backend.py',
    'total_config.py',
}
"""Files that pages name, and that are a user's, or written by a command."""


def test_files_that_pages_name_exist() -> None:
    ours = {file.name for folder in OUR_FOLDERS for file in (ROOT / folder).glob('**/*.py')}
    shown = {block.note for blocks in PAGES.values() for block in blocks if block.mark == 'file'}
    for page, text in TEXTS.items():
        paths = re.findall(rf'`((?:{"|".join(OUR_FOLDERS)})/[\w./-]+)`', text)
        missing = [path for path in paths if not (ROOT / path).exists()]
        missing += [
            name for name in re.findall(r'`(?:[\w.-]+/)*(\w+\.py)`', text) if name not in ours | shown
        ]
        assert set(missing) <= USERS_FILES, page
        labels = re.findall(r'\[`?([\w./]+\.(?:py|md))`?\]\(([^)#]+)', text)
        assert [label for label, file in labels if Path(label).name != Path(file).name] == [], page


NOT_BUILT_IN = {'policy.learn.batch_sise', 'policy.learn.teacher'}
"""Options that pages name as mistakes, or declare themselves."""
SPREAD = ('policy.learn.learner.hook.', 'policy.learn.learning_rate.', 'policy.other.eps.')
"""Options that are dicts, whose keys no table has."""


def test_options_that_pages_name_exist() -> None:
    known = set(re.findall(r'`([a-z][\w.]+)`', TEXTS[ROOT / 'docs' / 'config.md']))
    known |= {key.rsplit('.', n)[0] for key in known for n in range(1, key.count('.'))}
    for page, text in TEXTS.items():
        text = re.sub(r'^\*\*DI-engine:\*\*.*$', '', text, flags=re.MULTILINE)
        named = set(re.findall(r'(?<![\w./])policy\.(?:learn|collect|eval|model|other)\.\w+(?:\.\w+)*', text))
        types = {key for key in named if key.endswith(('.type', '.import_names'))}
        unknown = {key for key in named - known - types - NOT_BUILT_IN if not key.startswith(SPREAD)}
        assert not unknown or page.name == 'from_ding.md', page
