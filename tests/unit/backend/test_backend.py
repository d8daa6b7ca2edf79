"""Backends in a config: their names, their options beside those of collectors and evaluators, and what bad input gets."""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fakes import config_pair
from runs import ROOT, differences, end_state

from rlframe.app.scoring import Request, score
from rlframe.backend.ray.options import RAY_OPTIONS
from rlframe.config import (
    as_played,
    check_changes,
    check_trust,
    compile_config,
    config_data,
    split_config,
)
from rlframe.errors import ConfigError, UnsafeCheckpointError
from rlframe.pipeline import SerialPipeline
from rlframe.pipeline.resume import resume
from rlframe.pipeline.run_output import unused
from rlframe.registry import BACKEND_REGISTRY
from rlframe.run.progress import Progress
from rlframe.worker import create_serial_collector, create_serial_evaluator

DOCS = ROOT / 'docs' / 'backends.md'
COLLECTOR, EVALUATOR = 'policy.collect.collector', 'policy.eval.evaluator'


def error_of(*overrides: str, **sections: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        compile_config(*config_pair(**sections), overrides=overrides)
    return str(caught.value)


def test_an_option_of_another_backend_is_refused_with_what_to_set() -> None:
    text = error_of(evaluator={'max_pending': 3})
    assert text.startswith(
        f"{EVALUATOR}.max_pending is not a known key; the backend 'process' or 'ray' has {EVALUATOR}.max_pending"
    )
    assert f"Set {EVALUATOR}.backend='process' or 'ray'" in text
    assert f"the backend 'process' or 'ray' has {COLLECTOR}.num_collectors" in error_of(
        collector={'num_workers': 3}
    )


def test_an_override_of_the_backend_sets_aside_what_the_config_says_of_the_former_one() -> None:
    there = {'backend': 'ray', 'num_collectors': 3, 'remote_configs': {'num_cpus': 0.5}}
    cfg = compile_config(*config_pair(collector=there), overrides=['collector.backend=local'])
    assert RAY_OPTIONS.keys() & cfg.policy.collect.collector.keys() == {'overlap'}  # both have it
    given = ('collector.backend=local', 'collector.num_collectors=4')
    assert error_of(*given, collector=there).startswith(f'{COLLECTOR}.num_collectors is not a known key')


def test_a_resumed_run_may_change_the_backend_of_its_collector_but_not_of_its_buffer() -> None:
    actors = {'backend': 'ray', 'num_collectors': 3, 'sync': False}
    sections: tuple[dict[str, Any], ...] = (actors, {'overlap': 1}, {})
    ray, ahead, local = (compile_config(*config_pair(collector=section)) for section in sections)
    for before, now, names in (
        (ray, local, ['backend', 'num_collectors', 'sync']),
        (ahead, ray, ['backend', 'num_collectors', 'overlap', 'sync']),
    ):
        lines = check_changes(config_data(*split_config(before)), now, 'here')
        assert [line.partition(':')[0] for line in lines] == [f'{COLLECTOR}.{name}' for name in names]
    sharded = compile_config(
        *config_pair(buffer={'backend': 'ray', 'type': 'advanced'}, policy_={'priority': True})
    )
    with pytest.raises(ConfigError, match=r'replay_buffer\.backend: '):
        check_changes(config_data(*split_config(local)), sharded, 'here')


def test_playing_episodes_needs_no_option_of_a_backend() -> None:
    create = {'backend': 'ray', 'num_collectors': 3, 'sync': False}
    evaluator = {'backend': 'ray', 'max_pending': 5, 'remote_config': {'num_cpus': 2}}
    cfg = compile_config(*config_pair(collector=create, evaluator=evaluator))
    played = as_played(config_data(*split_config(cfg)))
    again = compile_config(played['main_config'], played['create_config'])
    assert again.policy.collect.collector.backend == again.policy.eval.evaluator.backend == 'local'


@pytest.mark.parametrize('create', [create_serial_collector, create_serial_evaluator])
def test_the_factories_create_what_runs_in_this_process(create: Any) -> None:
    kind = 'sample' if create is create_serial_collector else 'interaction'
    create({'type': kind, 'backend': 'local'})
    with pytest.raises(ConfigError, match=r"backend: .* in this process; got 'ray'"):
        create({'type': kind, 'backend': 'ray'})


@pytest.fixture
def example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The backend that the documentation shows, as a module in an empty working directory."""
    (code,) = re.findall(
        r'^```python\n(.*?)^```$', DOCS.read_text(encoding='utf-8'), re.MULTILINE | re.DOTALL
    )
    name = 'thread_backend'
    (tmp_path / f'{name}.py').write_text(code, encoding='utf-8')
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    yield name
    BACKEND_REGISTRY._classes.pop('thread', None)
    sys.modules.pop(name, None)


def threaded(module: str, **options: Any) -> Any:
    collector = {'backend': 'thread', 'import_names': [module], **options}
    return config_pair(
        collector=collector, exp_name='threaded', learn={'update_per_collect': 2}, evaluator={'eval_freq': 5}
    )


def test_a_backend_of_ones_own_trains_in_a_thread_and_resumes_bit_for_bit(example: str) -> None:
    pair = threaded(example, thread_timeout=30)
    for name in ('whole', 'cut'):
        Path(name).mkdir()
    with SerialPipeline(compile_config(*pair, max_train_iter=20), Path('whole')) as pipeline:
        assert type(pipeline.collector).__name__ == 'ThreadCollector'
        pipeline.run()
        assert (pipeline.progress.train_iter, pipeline.progress.envstep % 8) == (20, 0)
        assert any('ThreadPoolExecutor' in thread.name for thread in threading.enumerate())
        pipeline.checkpoints.save_latest()
    with SerialPipeline(compile_config(*pair, max_train_iter=10), Path('cut')) as pipeline:
        pipeline.run()
        pipeline.checkpoints.save_latest()
    found = resume(Path('cut'), overrides=['max_train_iter=20'])
    assert found.cfg.policy.collect.collector.thread_timeout == 30.0
    with SerialPipeline(found.cfg, found.folder, resume=found.checkpoint) as pipeline:
        assert pipeline.exact
        pipeline.run()
        pipeline.checkpoints.save_latest()
    assert not any('ThreadPoolExecutor' in thread.name for thread in threading.enumerate())
    assert not differences(end_state(Path('whole')), end_state(Path('cut')))
    assert len(score(Path('cut') / 'ckpt' / 'best', Request(2))[0]) == 2
    found = resume(Path('cut'), overrides=['max_train_iter=30', 'collector.backend=local'])
    with SerialPipeline(found.cfg, found.folder, resume=found.checkpoint) as pipeline:
        assert pipeline.checkpoints.inexact[0].startswith(
            'the run changed from one collector in a thread to one collector:'
        )
        pipeline.run()
    assert pipeline.progress.train_iter == 30


def test_a_backend_of_ones_own_is_code_in_a_foreign_config_and_its_options_are_checked(example: str) -> None:
    data = config_data(*split_config(compile_config(*threaded(example))))
    with pytest.raises(UnsafeCheckpointError, match=r"collector\.backend='thread' \(code\)"):
        check_trust(data, 'here', trust=False)
    with pytest.raises(ConfigError, match=r'thread_timeout: .*expected float in \(0, inf\) \(seconds\)'):
        compile_config(*threaded(example, thread_timeout=-1))
    with pytest.raises(ConfigError, match=r"thread_timeout is not a known key; the backend 'thread' has"):
        compile_config(*config_pair(collector={'backend': 'ray', 'thread_timeout': 3}))
    with pytest.raises(
        ConfigError, match=r"num_collectors is not a known key; the backend 'process' or 'ray' has"
    ):
        compile_config(*threaded(example, num_collectors=3))


@pytest.mark.parametrize(
    'word', ['', f'{COLLECTOR}.backend=ray', f'{EVALUATOR}.backend=ray', f'{COLLECTOR}.overlap=1']
)
def test_options_that_nothing_read_are_told_where_no_other_process_reads_any(word: str) -> None:
    cfg = compile_config(*config_pair(), overrides=['policy.nstep=3', *filter(None, [word])])
    run: Any = SimpleNamespace(cfg=cfg, progress=Progress(train_iter=1))
    told = 'policy.nstep was set but nothing read it'
    assert (told in unused(run, may_go_on=False)) is (word == '')
