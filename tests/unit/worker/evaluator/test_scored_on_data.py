"""A training run whose evaluator scores held-out records: what is best, when it stops, how it goes on, what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from error_texts import raises
from fakes import ScriptedPolicy
from zoo import BoxEnv, IdentityEnv

from rlframe import config
from rlframe.data import EnvSpec
from rlframe.entry.__main__ import main
from rlframe.pipeline import SerialPipeline, build
from rlframe.run.read_checkpoint import load_checkpoint
from rlframe.worker import IMetric, MetricSerialEvaluator

ENVS = {'accuracy': IdentityEnv, 'mse': BoxEnv}


@pytest.fixture(autouse=True)
def cwd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for kind, env in ENVS.items():
        for part, seed in (('train', 0), ('held', 1)):
            save(f'{kind}_{part}.npz', **records(env, seed))
    return tmp_path


def records(env: Any, seed: int, rows: int = 250) -> dict[str, np.ndarray]:
    """Returns what an expert did that is wrong now and then, so that no score is perfect."""
    rng = np.random.default_rng(seed)
    classes, shown = rng.integers(4, size=(2, rows))
    said = np.where(rng.random(rows) < 0.1, shown, classes)
    right = getattr(env, 'right', np.arange(4))
    obs = np.eye(4)[classes] + rng.normal(scale=0.3, size=(rows, 4))
    return {'obs': obs.astype(np.float32), 'action': right[said].astype(env.action_space.dtype)}


def save(path: str, **columns: Any) -> str:
    np.savez(path, **columns)
    return path


def pair(kind: str, **evaluator: Any) -> Any:
    env = ENVS[kind]
    main_config = dict(
        exp_name=kind,
        env=dict(env_id=f'{env.__module__}:{env.__name__}', evaluator_env_num=2, n_evaluator_episode=4),
        max_train_iter=200,
        checkpoint=dict(keep_best=3),
        policy=dict(
            cuda=False,
            learn=dict(batch_size=16, learning_rate=3e-3),
            eval=dict(evaluator=dict(eval_freq=10, batch_size=100) | evaluator),
        ),
    )
    create_config = dict(
        policy=dict(type='bc'),
        collector=dict(type='dataset', data=f'{kind}_train.npz'),
        evaluator=dict(type='metric', data=f'{kind}_held.npz'),
    )
    return main_config, create_config


def scores(folder: Path, name: str) -> dict[int, float]:
    lines = (folder / 'metrics.jsonl').read_text(encoding='utf-8').splitlines()
    found = [json.loads(line) for line in lines]
    return {record['train_iter']: record[f'eval/{name}'] for record in found if f'eval/{name}' in record}


@pytest.mark.parametrize('kind', ENVS)
def test_the_best_checkpoints_are_those_of_the_best_scores(kind: str) -> None:
    with SerialPipeline(config.compile_config(*pair(kind))) as pipeline:
        pipeline.run()
        result, folder = pipeline.result(), pipeline.folder
    told = scores(folder, kind)
    sign = 1 if kind == 'accuracy' else -1
    top = max(told.values(), key=lambda score: sign * score)
    assert len(told) == 21 and len(set(told.values())) > 2 and told[0] != top
    assert result[f'eval/best_{kind}'] == top and result[f'eval/{kind}'] == told[200]
    state, manifest = load_checkpoint(folder / 'ckpt' / 'best')
    assert manifest['score'] == sign * top and told[manifest['progress']['train_iter']] == top
    # those that were saved
    best_so_far = [i for i in told if all(sign * told[i] > sign * told[j] for j in told if j < i)]
    kept = sorted(int(path.name.rpartition('_')[2]) for path in (folder / 'ckpt').glob('best_iteration_*'))
    assert len(best_so_far) > 3 and kept == best_so_far[-3:]
    env, held = ENVS[kind], np.load(f'{kind}_held.npz')
    policy = build.make_policy(pipeline.cfg, pipeline.factory.spec, fields=('eval',))
    policy.eval_mode.load_state_dict(state['policy'])
    answer = policy.eval_mode.forward(held['obs'], np.arange(len(held['obs'])))['action']
    if env is IdentityEnv:
        assert np.mean(answer == held['action']) == pytest.approx(top)
    else:
        assert np.mean((answer.astype(float) - held['action']) ** 2) == pytest.approx(top, rel=1e-5)


def test_it_stops_at_its_own_stop_value_and_not_at_the_threshold_of_the_env() -> None:
    kind = 'mse'
    with SerialPipeline(config.compile_config(*pair(kind, stop_value=0.5))) as pipeline:
        pipeline.run()
        assert pipeline.stopped and 0 < pipeline.progress.train_iter < 200
        spec = pipeline.factory.spec
    cfg = config.compile_config(*pair(kind))
    solved = EnvSpec(spec.observation_space, spec.action_space, reward_threshold=0.1, name='Solved')
    backend = build.evaluator_backend(cfg, pipeline.factory)
    assert build.make_evaluator(cfg, backend, pipeline.policy, solved).stop_value is None


def as_file(tmp_path: Path, kind: str) -> str:
    texts = [
        f'{name} = {value!r}'
        for name, value in zip(('main_config', 'create_config'), pair(kind), strict=True)
    ]
    (tmp_path / 'mine.py').write_text('\n'.join(texts), encoding='utf-8')
    return str(tmp_path / 'mine.py')


def test_the_command_line_trains_says_the_score_and_scores_by_episodes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kind, goal = 'mse', 0.4
    assert main(['-c', as_file(tmp_path, kind), f'evaluator.stop_value={goal}']) == 0
    out = capsys.readouterr().out
    assert f'until an evaluation reaches {goal}' in out
    assert f'solved: best evaluation {kind} 0.' in out and f'(goal {goal})' in out
    words = ['eval', f'{kind}_seed0', '--json', '--episodes', '3']
    assert main(words) == 0
    assert json.loads(capsys.readouterr().out)['mean'] > 4, 'the return of episodes, of which the best is 8'
    words = ['-c', f'{kind}_seed0/total_config.py', '--exp-name', 'again']
    assert main(words) == 0
    assert f'best evaluation {kind} 0.' in capsys.readouterr().out


BAD = {
    'uneven.npz': ('one shared length',),
    'other_env.npz': ('do not fit IdentityEnv', 'column obs', 'obs float32[3]', '(4,)'),
    'other_action.npz': ('do not fit IdentityEnv', 'column action', 'action float64[2]', 'Discrete(4)'),
    'no_module:name': ("cannot import 'no_module:name'",),
    'data.csv': ("got '.csv'", 'npz'),
}


@pytest.mark.parametrize(
    ('data', 'who'), [('other_env.npz', 'collector'), *((data, 'evaluator') for data in BAD)]
)
def test_bad_data_are_named_and_leave_no_run_folder(
    data: str, who: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good = records(IdentityEnv, 0)
    obs, action = good['obs'], good['action']
    save('uneven.npz', obs=obs, action=action[1:])
    save('other_env.npz', obs=obs[:, 1:], action=action)
    save('other_action.npz', obs=obs, action=np.zeros((len(obs), 2)))
    assert main(['-c', as_file(tmp_path, 'accuracy'), f'{who}.data={data}']) == 2
    error = capsys.readouterr().err
    where = {'evaluator': 'policy.eval.evaluator.data', 'collector': 'policy.collect.collector.data'}[who]
    for word in (f'ConfigError: {where}: ', *BAD[data]):
        assert word in error
    assert not list(tmp_path.glob('accuracy_seed*'))


class Nothing(IMetric):
    eval = reduce_mean = gt = lambda self, *given: None


def test_bad_pairs_and_empty_loaders_are_refused() -> None:
    for bad in ([1, 2, 3], (np.zeros(3), 'metric'), 7):
        with pytest.raises(TypeError, match=r'takes a pair \(loader, IMetric\)'):
            MetricSerialEvaluator({}, bad)
    with raises(ValueError):
        MetricSerialEvaluator({}, ([], Nothing())).eval()
    with raises(ValueError):
        MetricSerialEvaluator({}, ([], Nothing()), ScriptedPolicy().eval_mode).eval()
