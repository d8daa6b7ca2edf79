"""Hooks of a run: which events they get and when, what they see and may do, their state, and what a config may say."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from error_texts import raises
from foreign import CREATE, MAIN

import rlframe
from rlframe import config
from rlframe.display.live import last_lines
from rlframe.errors import CheckpointStateError, ConfigError, HookError, UnsafeCheckpointError
from rlframe.pipeline import SerialPipeline
from rlframe.pipeline.resume import resume
from rlframe.registry import HOOK_REGISTRY
from rlframe.run.read_checkpoint import load_checkpoint
from rlframe.utils.field import Field
from rlframe.worker.hooks import RunHook, RunView
from rlframe.worker.hooks.run_hook import EVENTS
from rlframe.worker.learner.learner_hook import SaveCkptHook

pytestmark = pytest.mark.usefixtures('cwd')


@HOOK_REGISTRY.register('recorder')
class Recorder(RunHook):
    """Notes all events, and does what the test asks for at one of them."""

    config = dict(
        at=Field('', doc='event'),
        act=Field('', doc='what to do there'),
        calls=Field(0, doc='of that event before'),
    )

    def __init__(self, cfg: Mapping[str, Any] | None = None) -> None:
        super().__init__(cfg)
        self.seen: list[str] = []
        self.counts: list[tuple[int, int]] = []
        self.envsteps = 0

    def note(self, event: str, run: RunView) -> None:
        self.seen.append(event)
        self.counts.append((run.progress.envstep, run.progress.train_iter))
        if event == self._cfg.at and self.seen.count(event) > self._cfg.calls:
            if self._cfg.act == 'stop':
                run.stop('enough')
            elif self._cfg.act == 'log':
                run.log('mine/rows', len(run.collected))
                run.log_histogram('mine/rewards', run.collected['reward'])
            else:
                raise ArithmeticError('broken')

    def after_env_step(self, run: RunView) -> None:
        self.envsteps += 1

    def state_dict(self) -> dict[str, Any]:
        return {'envsteps': self.envsteps}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.envsteps = int(state['envsteps'])


for event in EVENTS:
    if event != 'after_env_step':
        setattr(Recorder, event, lambda self, run, event=event: self.note(event, run))


def compiled(*overrides: str, **hooks: Any) -> Any:
    return config.compile_config({**MAIN, 'hooks': hooks}, CREATE, overrides=['max_train_iter=2', *overrides])


def hook_of(pipeline: SerialPipeline, name: str = 'recorder') -> Any:
    return pipeline.hooks._hooks[name]


def trained(*overrides: str, **hooks: Any) -> SerialPipeline:
    with SerialPipeline(compiled(*overrides, **hooks)) as pipeline:
        pipeline.run()
    return pipeline


def test_events_come_in_the_order_of_a_run() -> None:
    pipeline = trained(recorder=True)
    hook, run = hook_of(pipeline), pipeline.hooks.run
    one_round = ['after_eval', 'before_collect', 'after_collect', 'after_round']
    without_best = [event for event in hook.seen if event != 'after_checkpoint']
    assert without_best == ['before_run', *one_round * 2, 'after_eval', 'after_run']
    assert hook.seen[-1] == 'after_checkpoint' and hook.seen.count('after_checkpoint') >= 2
    assert hook.counts[0] == (0, 0) and hook.counts[-1] == (16, 2)
    assert hook.envsteps == 8  # of 2 envs, updates not counted
    assert run.checkpoint == pipeline.folder / 'ckpt' / 'iteration_2' and run.outcome == 'done'
    assert run.policy is pipeline.policy and run.replay_buffer is pipeline.replay_buffer
    assert run.evaluation.score == run.evaluator.latest == run.metrics()['eval/mean_reward']
    assert 'train/total_loss' in run.metrics() and not any(tag.startswith('time/') for tag in run.metrics())


def test_a_hook_logs_metrics_and_histograms() -> None:
    pipeline = trained(recorder=dict(at='after_collect', act='log'))
    lines = [json.loads(line) for line in (pipeline.folder / 'metrics.jsonl').read_text().splitlines()]
    assert [(line['envstep'], line['mine/rows']) for line in lines if 'mine/rows' in line] == [
        (8, 8.0),
        (16, 8.0),
    ]


@pytest.mark.parametrize(('at', 'train_iter'), [('after_collect', 1), ('before_run', 0)])
def test_training_that_a_hook_stops_ends_in_order(at: str, train_iter: int) -> None:
    pipeline = trained(recorder=dict(at=at, act='stop'))
    hook = hook_of(pipeline)
    assert pipeline.finished and not pipeline.stopped and pipeline.progress.train_iter == train_iter
    assert pipeline.loop.evaluated_at == train_iter and 'after_run' in hook.seen
    assert pipeline.hooks.run.outcome == 'stopped'
    assert load_checkpoint(pipeline.folder / 'ckpt' / 'latest')[1]['progress']['train_iter'] == train_iter
    assert last_lines(pipeline, 1.0, False).startswith('stopped: enough\nsaved: best evaluation')
    assert 'training ends: enough' in (pipeline.folder / 'log.txt').read_text()


def test_an_exception_names_the_hook_and_the_event() -> None:
    with pytest.raises(ArithmeticError, match='broken') as caught:
        trained(other=dict(type='recorder', at='before_collect', calls=1), recorder=True)
    assert "raised in the hook 'other' at before_collect, train_iter 1" in caught.value.__notes__
    assert any(note.startswith('emergency checkpoint') for note in caught.value.__notes__)


def test_an_exception_of_the_hook_for_exceptions_does_not_hide_the_first() -> None:
    class Twice(RunHook):
        def after_round(self, run: RunView) -> None:
            raise KeyError('first')

        def on_exception(self, run: RunView) -> None:
            assert run.outcome == 'failed'
            raise ValueError(f'after {run.error!r}')

    HOOK_REGISTRY.register('twice', Twice, force_overwrite=True)
    with pytest.raises(KeyError, match='first') as caught:
        trained(twice=True)
    assert (
        "and then, in the hook 'twice' at on_exception: ValueError: after KeyError('first')"
        in caught.value.__notes__
    )


def test_a_resumed_run_goes_on_with_the_state_of_its_hooks() -> None:
    folder = trained('policy.learn.learner.hook.save_ckpt_after_iter=1', recorder=True).folder
    found = resume(folder, max_train_iter=3)
    with SerialPipeline(found.cfg, found.folder, resume=found.saved) as pipeline:
        assert hook_of(pipeline).envsteps == 8 and pipeline.hooks.run.metrics()['eval/mean_reward'] > 0
        pipeline.run()
    assert hook_of(pipeline).envsteps == 12


def test_a_run_may_be_resumed_with_other_hooks_and_from_a_checkpoint_without_any(capsys: Any) -> None:
    folder = trained('hooks.doctor=False').folder
    assert 'hooks' not in load_checkpoint(folder / 'ckpt' / 'latest')[0]
    found = resume(folder, overrides=['hooks.doctor=True', 'hooks.early_stop.patience=4'], max_train_iter=3)
    assert not any('hooks' in note and 'doctor' not in note for note in found.notes)
    with SerialPipeline(found.cfg, found.folder, resume=found.saved) as pipeline:
        pipeline.run()
    assert set(load_checkpoint(folder / 'ckpt' / 'latest')[0]['hooks']['hooks']) == {'doctor', 'early_stop'}
    assert resume(folder, overrides=['hooks.early_stop.patience=5']).notes == (
        'changed: hooks.early_stop.patience: 4 before, 5 now',
    )


def test_a_state_that_does_not_fit_is_named() -> None:
    with SerialPipeline(compiled(early_stop=True)) as pipeline, pytest.raises(CheckpointStateError) as caught:
        pipeline.hooks.load_state_dict({'hooks': {'early_stop': {'best': 'x', 'worse': 1}}, 'metrics': {}})
    assert caught.value.where == 'hooks.early_stop.best'


@pytest.mark.parametrize(
    'hooks',
    [
        dict(erly_stop=True),
        dict(early_stop=3),
        ['early_stop'],
        dict(wall_clock=True),
        dict(early_stop=dict(patience=0)),
    ],
)
def test_what_a_config_says_wrongly_is_named(hooks: Any) -> None:
    with raises(ConfigError):
        config.compile_config({**MAIN, 'hooks': hooks}, CREATE)


IN_PARALLEL = dict(comm_collector=dict(type='in_process'), comm_learner=dict(type='in_process'))


@pytest.mark.parametrize('name', ['recorder', 'gradient_histogram'])
def test_parallel_mode_refuses_hooks_that_it_cannot_serve(name: str) -> None:
    with raises(ConfigError):
        config.compile_config({**MAIN, 'hooks': {name: True}}, {**CREATE, **IN_PARALLEL})
    hooks = dict(early_stop=True, wall_clock=dict(seconds=1), doctor=True)
    config.compile_config({**MAIN, 'hooks': hooks}, {**CREATE, **IN_PARALLEL})


def test_a_backend_with_envs_elsewhere_refuses_hooks_of_each_env_step() -> None:
    with raises(ConfigError):
        compiled('collector.backend=ray', recorder=True)
    compiled('collector.backend=ray', early_stop=True)


@pytest.mark.parametrize(
    ('hooks', 'key', 'reaches'),
    [
        (dict(payload=True), 'hooks.payload.type', 'code'),
        (dict(x=dict(type='payload')), 'hooks.x.type', 'code'),
        (dict(doctor=dict(import_names=['payload'])), 'hooks.doctor.import_names', 'code'),
    ],
)
def test_hooks_of_a_foreign_config_that_reach_beyond_the_run_are_refused(
    hooks: Any, key: str, reaches: str
) -> None:
    data = {'main_config': {**MAIN, 'hooks': hooks}, 'create_config': CREATE}
    found = {each.key: each.reaches for each in config.reaching_values(data)}
    assert found[key] == reaches
    with pytest.raises(UnsafeCheckpointError):
        config.check_trust(data, 'here', trust=False)
    config.check_trust(config.as_played(data), 'here', trust=False)


def test_hooks_change_no_bit_of_training() -> None:
    state = {}
    for hooks in ({'doctor': False}, {'recorder': True, 'doctor': True, 'gradient_histogram': {'every': 1}}):
        pipeline = trained('max_train_iter=6', **hooks)
        state[len(state)] = pipeline.policy.learn_mode.state_dict()['model']
    assert all(np.array_equal(state[0][name], state[1][name]) for name in state[0])


@pytest.mark.parametrize('name', ['after_evl', 'after_ron', 'on_evaluatoin'])
def test_a_hook_with_a_misspelt_event_is_an_error(name: str) -> None:
    with raises(HookError):
        type('Tall', (RunHook,), {name: lambda self, run: None})
    type('Plain', (RunHook,), {'on_gpu': True, f'_{name}': lambda self: None})


class Counter(RunHook):
    """Counts rounds, and keeps the number in checkpoints."""

    rounds = 0

    def after_round(self, run: RunView) -> None:
        self.rounds += 1

    def state_dict(self) -> dict[str, Any]:
        return {'rounds': self.rounds}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.rounds = state['rounds']


def after_evaluation(run: RunView) -> None:
    """Is named like an event, and none."""


async def after_round(run: RunView) -> None:
    """Would not be awaited."""


def test_states_follow_the_order_of_the_hooks_of_a_class_alone(tmp_path: Path) -> None:
    options: dict[str, Any] = dict(config=(MAIN, CREATE), folder=tmp_path / 'run', progress=False)
    rlframe.train(**options, max_train_iter=4, hooks=[Counter(), Counter()])
    again = [Counter(), Counter()]
    rlframe.open_run(tmp_path / 'run', hooks=[print, *again]).resume(max_train_iter=8, progress=False)
    assert again[0].rounds == again[1].rounds
    single = Counter()
    rlframe.open_run(tmp_path / 'run', hooks=single).resume(max_train_iter=12, progress=False)
    assert single.rounds > again[0].rounds
    with raises(HookError):
        rlframe.train(**options | {'folder': tmp_path / 'other'}, hooks={'early_stop': True})


def test_objects_and_functions_of_a_program_are_hooks_and_continue(tmp_path: Path) -> None:
    seen: list[str] = []

    def after_checkpoint(run: RunView) -> None:
        assert run.checkpoint is not None
        seen.append('checkpoint')

    counter, options = Counter(), dict(config=(MAIN, CREATE), folder=tmp_path / 'run', progress=False)
    run = rlframe.train(
        **options,
        max_train_iter=4,
        hooks=[counter, Counter(), after_checkpoint, lambda run: seen.append('round')],
    )
    assert 'checkpoint' in seen and seen.count('round') == counter.rounds > 0
    run.resume(max_train_iter=8)
    first = counter.rounds
    again = Counter()
    rlframe.open_run(tmp_path / 'run', hooks=[again]).resume(max_train_iter=12, progress=False)
    assert again.rounds > first == seen.count('round')


@pytest.mark.parametrize(
    'hook', [Counter, SaveCkptHook('mine', 20), {'early_stop': True}, after_evaluation, after_round]
)
def test_other_objects_are_refused_before_anything_starts(tmp_path: Path, hook: Any) -> None:
    with raises(HookError):
        rlframe.train((MAIN, CREATE), folder=tmp_path / 'run', hooks=[hook])
    assert not (tmp_path / 'run').exists()
