"""The parallel collector of games: seats, opponents, results."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from parallel_parts import ScriptedCoordinator, compiled, task_of, weights_of
from runs import differences

from rlframe.parallel.comm_collector import BaseCommCollector
from rlframe.parallel.parallel_collectors import MarineParallelCollector
from rlframe.parallel.roles import collector_maker, evaluator_maker
from rlframe.parallel.transport.base import Reply
from rlframe.parallel.transport.messages import AskWeights, Weights

CONFIG = ('tictactoe_league', 'env.n_evaluator_episode=6')


@pytest.fixture(scope='module')
def cfg() -> Any:
    return compiled(*CONFIG)


def run(coordinator: ScriptedCoordinator, cfg: Any, **options: Any) -> MarineParallelCollector:
    """Lets a collector do the coordinator's tasks."""
    collector = MarineParallelCollector(options, collector_maker(cfg), evaluator_maker(cfg))
    BaseCommCollector({}, collector=collector, transport=coordinator.server.connect(), name='m').run()
    return collector


def pair(first: str, second: str, active: tuple[bool, bool], kind: str = 'collect', **fields: Any) -> Any:
    return task_of(kind, policies=[first, second], active=list(active), **fields)


def test_self_play_equals_the_serial_collector_with_one_policy_in_all_seats(cfg: Any) -> None:
    weights = {0: weights_of(cfg, 1)}
    coordinator = ScriptedCoordinator([pair('main', 'main', (True, True), parts=2)], weights)
    run(coordinator, cfg)
    parts = collector_maker(cfg)(0, 0)
    parts.trained[0].load_state_dict(weights[0])
    parts.collector.reset_policy(parts.trained[0])
    parts.collector.reset_env()
    for _, batch in coordinator.parts:
        collected = parts.collector.collect(6, train_iter=0, policy_kwargs={})
        expected = parts.collector.training_data(collected)
        assert differences(dict(batch.items()), dict(expected.items())) == []
    parts.collector.close()
    assert coordinator.kinds.count('AskWeights') == 1


def test_only_the_moves_of_active_policies_are_returned_and_each_pair_gets_its_own_weights(cfg: Any) -> None:
    trees = {name: weights_of(cfg, seed) for seed, name in enumerate(('main', 'past_1', 'past_2'))}
    tasks = [
        pair('main', 'past_1', (True, False), task='a'),
        pair('main', 'past_2', (True, False), task='b'),
        pair('main', 'random', (True, False), task='c'),
    ]
    coordinator = ScriptedCoordinator(tasks)
    asked: list[tuple[str, int]] = []

    def give(message: AskWeights, payload: Any) -> Reply:
        asked.append((message.policy, message.newer_than))
        return Reply(Weights(4, 40), trees[message.policy])

    coordinator.on[AskWeights] = give
    collector = run(coordinator, cfg)
    assert asked == [('main', -1), ('past_1', -1), ('past_2', -1)]
    assert [message.rows for message, _ in coordinator.parts] == [6, 6, 6]
    assert all((batch['collect_iter'] == 40).all() for _, batch in coordinator.parts)
    assert collector.produced == 18


def test_policies_change_seats_after_a_number_of_games_and_results_are_those_of_the_trained_one(
    cfg: Any,
) -> None:
    tasks = [pair('main', 'random', (True, False), task=f't{i}', target=40) for i in range(4)]
    coordinator = ScriptedCoordinator(tasks, {0: weights_of(cfg, 1)})
    seats: list[int] = []
    collector = MarineParallelCollector({'games_per_seat': 5}, collector_maker(cfg), None)
    seat, infos = type(collector)._results, []

    def noted(collected: Any) -> list[str]:
        seats.append(collector._seat)
        infos.append([info['result'] for info in collected[1][collector._seat]])
        assert not len(collected[0][1 - collector._seat]) and len(collected[0][collector._seat])
        return seat(collector, collected)

    collector._results = noted  # type: ignore[method-assign]
    BaseCommCollector({}, collector=collector, transport=coordinator.server.connect(), name='m').run()
    assert seats == [1, 0, 1, 0]
    assert [message.facts['results'] for message, _ in coordinator.parts] == infos and all(infos)
    words = {'win': 'wins', 'draw': 'draws', 'loss': 'losses'}
    assert [f.facts['game_result'] for f in coordinator.finished] == [
        [[words[r] for r in own]] for own in infos
    ]


def test_an_evaluation_against_an_opponent_counts_its_games_for_the_first_policy(cfg: Any) -> None:
    tasks = [
        task_of('evaluate', task='a', target=0),
        pair('main', 'past_1', (False, False), 'evaluate', task='b', target=0),
        task_of('evaluate', task='c', target=0),
    ]
    coordinator = ScriptedCoordinator(tasks, {0: weights_of(cfg, 1)})
    run(coordinator, cfg)
    alone, against, again = (finished.facts for finished in coordinator.finished)
    assert alone['reward_raw'] == again['reward_raw'] and len(against['reward_raw']) == 6
    games = against['game_result'][0]
    wins = np.mean([game == 'wins' for game in games]) - np.mean([game == 'losses' for game in games])
    assert len(games) == 6 and against['score'] == pytest.approx(wins)


def test_evaluations_against_a_past_self_begin_with_random_moves() -> None:
    games = {}
    for moves in (0, 1):
        own = compiled(
            'tictactoe_league', 'env.n_evaluator_episode=24', f'commander.league.eval_opening={moves}'
        )
        tasks = [
            pair('main', other, (False, False), 'evaluate', task=task, target=0)
            for task, other in (('a', 'past_1'), ('b', 'random'), ('c', 'past_1'))
        ]
        coordinator = ScriptedCoordinator(tasks, {0: weights_of(own, 1)})
        run(coordinator, own)
        past, random, again = (
            list(zip(facts['game_result'][0], facts['episode_info']['eval_episode_len'], strict=True))
            for facts in (finished.facts for finished in coordinator.finished)
        )
        assert past == again, 'an evaluation depends on nothing but the weights'
        games[moves] = set(past), random
    assert len(games[0][0]) <= 2 < len(games[1][0]), 'two greedy players play the same game in each seat'
    assert games[0][1] == games[1][1], 'a random player needs no opening'


def test_collection_at_random_plays_and_records_all_seats(cfg: Any) -> None:
    tasks = [
        pair('main', 'main', (True, True), 'collect_at_random', task='a', target=10),
        pair('main', 'main', (True, True), task='b'),
    ]
    coordinator = ScriptedCoordinator(tasks, {0: weights_of(cfg, 1)})
    run(coordinator, cfg)
    assert [message.rows for message, _ in coordinator.parts] == [20, 12]


def test_a_task_in_which_no_game_ended_reports_no_results(cfg: Any) -> None:
    coordinator = ScriptedCoordinator(
        [pair('main', 'main', (True, True), target=1, parts=1)], {0: weights_of(cfg, 1)}
    )
    run(coordinator, cfg)
    assert coordinator.finished[0].facts['game_result'] == [[]]
