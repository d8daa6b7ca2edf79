"""Evaluation in an actor beside training gives what it gives in this process, and survives the loss of the actor."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest
from ray_runs import config_of
from runs import differences, records

from rlframe.entry.__main__ import main
from rlframe.errors import WorkerLostError
from rlframe.pipeline import SerialPipeline
from rlframe.run.read_checkpoint import load_checkpoint

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures('ray_of_tests')]
BESIDE = ('evaluator.backend=ray', 'env.n_evaluator_episode=5')
HERE = ('env.n_evaluator_episode=5',)


def start(
    folder: Path, case: str, *words: str, train_iter: int = 180, resume: Path | None = None
) -> SerialPipeline:
    folder.mkdir(parents=True, exist_ok=True)
    cfg = config_of(case, *words, f'max_train_iter={train_iter}')
    return SerialPipeline(cfg, folder, resume=resume and resume / 'ckpt' / 'latest')


def evaluations(folder: Path) -> list[dict[str, Any]]:
    """Returns the records of evaluations but for times."""
    return [record for record in records(folder) if 'eval/mean_reward' in record]


def left_of(folder: Path) -> dict[str, Any]:
    """Returns what evaluations left behind, and the weights at the end."""
    best, manifest = load_checkpoint(folder / 'ckpt' / 'best')
    latest, _ = load_checkpoint(folder / 'ckpt' / 'latest')
    best['progress'] |= {'wall_time': 0}
    evaluator = {name: latest['evaluator'][name] for name in ('last_eval_iter', 'best', 'latest')}
    return {
        'best': best,
        'score': manifest['score'],
        'evaluator': evaluator,
        'policy': latest['policy'],
        'evaluations': evaluations(folder),
    }


def test_evaluation_beside_training_is_that_of_the_process_itself(tmp_path: Path) -> None:
    words = ('policy.normalize_obs=true', 'policy.model.core=lstm')
    for name, more in (('here', HERE), ('beside', BESIDE)):
        with start(tmp_path / name, 'ppo', *words, *more) as pipeline:
            assert pipeline.evaluator.answers_later == (name == 'beside')
            pipeline.run()
    here, beside = left_of(tmp_path / 'here'), left_of(tmp_path / 'beside')
    assert len(here['evaluations']) >= 3
    assert differences(here, beside) == []


def freeze_when_asked(pipeline: SerialPipeline, times: int, train_iter: int = 0, kills: int = 0) -> list[int]:
    """Stops the actor before it is asked for an evaluation, so that it cannot answer; the first few are then killed.

    Returns:
        The process ids, which grow with each actor that is stopped.
    """
    pool = pipeline.evaluator._pool
    ask, frozen = pool.ask, []

    def freeze_and_ask(rank: int, *words: Any) -> Any:
        facts = pool.slots[rank].facts
        if facts is None or len(frozen) == times or pipeline.progress.train_iter < train_iter:
            return ask(rank, *words)
        os.kill(facts.pid, signal.SIGSTOP)
        call = ask(rank, *words)
        if len(frozen) < kills:
            os.kill(facts.pid, signal.SIGKILL)
        frozen.append(facts.pid)
        return call

    pool.ask = freeze_and_ask
    return frozen


def test_training_goes_on_while_the_policy_is_evaluated_and_stops_at_the_answer(tmp_path: Path) -> None:
    words = (*BESIDE, 'env.stop_value=1', 'env.n_evaluator_episode=60', 'evaluator.eval_freq=20')
    with start(tmp_path, 'dqn naive', *words, 'evaluator.max_pending=1000', train_iter=20_000) as pipeline:
        frozen = freeze_when_asked(pipeline, times=1, train_iter=20)

        def thaw(p: SerialPipeline) -> bool:
            if frozen and p.progress.train_iter >= 60:
                os.kill(frozen[0], signal.SIGCONT)
            return False

        pipeline.run(thaw)
        assert pipeline.stopped and 20 < pipeline.progress.train_iter < 20_000
    _, manifest = load_checkpoint(tmp_path / 'ckpt' / 'best')
    first = evaluations(tmp_path)[1]  # at train iteration 0 no run stops
    assert first['train_iter'] == 20 and pipeline.progress.train_iter >= 60
    assert manifest['score'] == pipeline.evaluator.best


def test_evaluation_of_an_actor_that_is_killed_or_hangs_is_repeated(tmp_path: Path) -> None:
    with start(tmp_path / 'here', 'dqn naive', *HERE) as pipeline:
        pipeline.run()
    with start(tmp_path / 'beside', 'dqn naive', *BESIDE, 'evaluator.eval_timeout=6') as pipeline:
        lost = freeze_when_asked(pipeline, times=2, kills=1)
        pipeline.run()
        assert len(set(lost)) == 2 and pipeline.evaluator.repeated >= 2
    assert differences(left_of(tmp_path / 'here'), left_of(tmp_path / 'beside')) == []


def test_too_many_lost_actors_end_the_run_with_causes_and_a_checkpoint(tmp_path: Path) -> None:
    words = (*BESIDE, 'evaluator.max_actor_restarts=0', 'env.n_evaluator_episode=500')
    with start(tmp_path, 'dqn naive', *words) as pipeline:
        freeze_when_asked(pipeline, times=1, kills=1)
        with pytest.raises(
            WorkerLostError, match=r'evaluator\.max_actor_restarts: 1 worker was lost'
        ) as caught:
            pipeline.run()
    assert any('emergency checkpoint' in note for note in caught.value.__notes__)
    path = next((tmp_path / 'ckpt').glob('emergency_*'))
    state, _ = load_checkpoint(path)
    assert len(state['evaluator']['pending']) == len(state['held']) >= 1


def test_endless_episodes_are_cut_in_the_actor_and_told_of_here(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with start(tmp_path, 'dqn naive', *BESIDE, 'evaluator.max_episode_len=3', train_iter=60) as pipeline:
        pipeline.run()
    assert [record['eval/cut_episodes'] for record in evaluations(tmp_path)] == [5.0, 5.0]
    assert '5 of 5 evaluated episodes did not end within 3 env steps' in caplog.text


def test_a_resumed_run_evaluates_elsewhere_and_leaves_out_what_an_actor_had_not_finished(
    tmp_path: Path,
) -> None:
    with start(tmp_path / 'straight', 'dqn naive', *HERE) as pipeline:
        pipeline.run()
    with start(tmp_path / 'first', 'dqn naive', *HERE, train_iter=60) as pipeline:
        pipeline.run()
    with start(
        tmp_path / 'beside', 'dqn naive', *BESIDE, train_iter=120, resume=tmp_path / 'first'
    ) as pipeline:
        assert pipeline.exact
        frozen = freeze_when_asked(pipeline, times=1, train_iter=120)
        pipeline.run(interrupted=lambda: pipeline.finished)
        pipeline.checkpoints.save_latest()
        os.kill(frozen[0], signal.SIGCONT)
    for train_iter in (120, 180):
        last = tmp_path / str(train_iter)
        with start(last, 'dqn naive', *HERE, train_iter=train_iter, resume=tmp_path / 'beside') as pipeline:
            assert pipeline.checkpoints.inexact == [
                'the run leaves out 1 evaluation that had begun in an actor'
            ]
            assert not pipeline.complete and pipeline.evaluations == 0
            pipeline.run()
            assert pipeline.evaluations == 1
    states = [load_checkpoint(folder / 'ckpt' / 'latest')[0] for folder in (tmp_path / 'straight', last)]
    assert differences(*(state['policy'] for state in states)) == []
    assert evaluations(tmp_path / 'straight')[-1] == evaluations(last)[-1]


@pytest.mark.parametrize('where', [BESIDE, HERE], ids=['beside', 'here'])
def test_run_that_is_interrupted_in_its_last_evaluation_has_it_when_it_is_resumed(
    where: tuple[str, ...], tmp_path: Path
) -> None:
    words = (*where, 'env.n_evaluator_episode=40', *(['evaluator.max_pending=9'] if where == BESIDE else []))
    with start(tmp_path / 'straight', 'dqn naive', *words) as pipeline:
        pipeline.run()
        assert pipeline.complete
    with start(tmp_path / 'parts', 'dqn naive', *words) as pipeline:
        actors = (
            [slot.facts.pid for slot in pipeline.evaluator._pool.slots.values()] if where == BESIDE else []
        )

        def freeze(pipeline: SerialPipeline) -> bool:
            for pid in actors if pipeline.finished else ():
                os.kill(pid, signal.SIGSTOP)  # the last answer cannot come before the interruption
            return False

        pipeline.run(freeze, lambda: pipeline.finished)
        assert pipeline.finished and not pipeline.complete
        pipeline.checkpoints.save_latest()
        for pid in actors:
            os.kill(pid, signal.SIGCONT)
    assert all(done['train_iter'] < pipeline.progress.train_iter for done in evaluations(tmp_path / 'parts'))
    assert main(['train', '--resume', str(tmp_path / 'parts')]) == 0
    straight, parts = left_of(tmp_path / 'straight'), left_of(tmp_path / 'parts')
    assert differences(straight, parts) == []
    assert main(['train', '--resume', str(tmp_path / 'parts')]) == 0
    assert differences(straight, left_of(tmp_path / 'parts')) == [], 'nothing was left to do'
