"""What needs no Ray of the collection through it: weights as bytes, shares and their sum, options."""

from __future__ import annotations

import itertools
import json
import pickle
from typing import Any

import numpy as np
import pytest
import torch
from fakes import config_pair
from runs import differences

from rlframe.backend.ready import Ready, merged, shares, writable
from rlframe.config import compile_config
from rlframe.data import Batch
from rlframe.errors import ActorFailedError, ConfigError, EnvCrashedError
from rlframe.remote.weights import flatten, is_same, unflatten
from rlframe.remote.worker import Failure, Worker, failure_of, raise_failure
from rlframe.run.checkpoint_tree import Encoder, decode, to_json
from rlframe.utils.serialize import to_child


def from_the_store(weights: list[np.ndarray]) -> list[np.ndarray]:
    """Returns weights as an actor gets them: arrays that nobody may write to."""
    return [np.frombuffer(piece.tobytes(), np.uint8) for piece in weights]


def test_weights_come_back_bit_for_bit_as_copies() -> None:
    tree = {'model': {'w': torch.randn(3, 5)}, 'normalizer': {'obs.mean': np.arange(3.0)}, 'version': 7}
    weights = flatten(tree)
    there = from_the_store(weights)
    back = unflatten(there)
    assert differences(tree, back) == []
    assert tree['model']['w'].data_ptr() in {piece.ctypes.data for piece in weights}
    back['normalizer']['obs.mean'] += 1
    assert unflatten(there)['normalizer']['obs.mean'].tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    'other', [{'w': torch.tensor([1.0, 2.0])}, {'v': torch.tensor([torch.nan, 2.0])}, {}]
)
def test_weights_are_the_same_only_if_each_bit_is(other: dict[str, Any]) -> None:
    weights = flatten({'w': torch.tensor([torch.nan, 2.0])})
    assert is_same(flatten({'w': torch.tensor([torch.nan, 2.0])}), from_the_store(weights))
    assert not is_same(flatten(other), weights) and not is_same(weights, flatten(other))


def test_shares_add_up_and_differ_by_one_at_most() -> None:
    for total, actors in itertools.product((1, 2, 7, 8, 29), (1, 3, 7)):
        ranks = [3 * i for i in range(actors)]
        divided = shares(total, ranks, 1, 'here')
        assert sum(divided.values()) == total and 0 not in divided.values()
        assert max(divided.values()) - min(divided.values()) <= 1
        assert list(divided) == ranks[: len(divided)]
        assert list(divided.values()) == sorted(divided.values(), reverse=True)


def test_equal_shares_that_are_not_possible_name_the_nearest_totals() -> None:
    assert shares(24, [0, 1], 4, 'n') == {0: 12, 1: 12}
    with pytest.raises(ConfigError, match=r'not divisible by 8; got 20, expected 16 or 24'):
        shares(20, [0, 1], 4, 'n')
    with pytest.raises(ConfigError, match=r'expected 8$'):
        shares(3, [0, 1], 4, 'n')


def rows(*numbers: int) -> Batch:
    return Batch(number=np.array(numbers))


def test_what_actors_collected_is_joined_in_their_order() -> None:
    assert merged([rows(1, 2), rows(3)])['number'].tolist() == [1, 2, 3]
    episodes = merged([[rows(1), rows(2, 3)], [rows(4)]])
    assert [e['number'].tolist() for e in episodes] == [[1], [2, 3], [4]]
    of_players = ([rows(1), []], [[{'a': 1}], []]), ([rows(2), []], [[{'a': 2}], []])
    data, infos = merged(of_players)
    assert data[0]['number'].tolist() == [1, 2] and data[1] == []
    assert infos == [[{'a': 1}, {'a': 2}], []]


def read_back(state: dict[str, Any]) -> Any:
    """Returns a state as a checkpoint gives it back."""
    encoder = Encoder()
    tree = to_json(encoder.tree(state))
    return decode(json.loads(tree), encoder.arrays)


def numbers(data: Any) -> Any:
    return data['number'].tolist() if isinstance(data, Batch) else [numbers(part) for part in data]


INFOS = [[{'result': 'win'}], [{'result': 'loss'}]]
WAITING = [
    (Ready(3, rows(1, 2, 3), 3), 3, [[1, 2], [3]]),
    (Ready(3, [rows(1), rows(2, 3), rows(4)], 3), 4, [[[1], [2, 3]], [[4]]]),
    (Ready(3, ([rows(1, 2, 3), rows(4, 5, 6)], INFOS), 3), 6, [[[1, 2], [4, 5]], [[3], [6]]]),
    (Ready(3, ([rows(1, 2, 3), []], INFOS), 3), 3, [[[1, 2], []], [[3], []]]),
    (Ready(3, ([[rows(1), rows(2, 3)], []], INFOS), 2), 3, [[[[1], [2, 3]], []]]),
    (Ready(3, rows(1, 2, 3, 4, 5), 3), 5, [[1, 2, 3, 4, 5]]),  # samples of three episodes
]


@pytest.mark.parametrize(('ready', 'steps', 'parts'), WAITING)
def test_what_waits_is_cut_where_it_can_be_and_survives_a_checkpoint(
    ready: Ready, steps: int, parts: list[Any]
) -> None:
    assert ready.steps == steps
    back = Ready.from_state_dict(read_back(ready.state_dict(newest=5)), newest=9)
    assert back.version == 7 and back.size == ready.size
    for waiting in (ready, back):
        now, later = waiting.cut(2)
        cut = [now, *later]
        of_players = isinstance(ready.data, tuple)
        assert [numbers(part.data[0] if of_players else part.data) for part in cut] == parts
        assert sum(part.size for part in cut) == ready.size and waiting.cut(ready.size) == (waiting, [])
        if of_players:
            assert [part.data[1] for part in cut] == [INFOS, [[], []]][: len(cut)]


def test_read_only_arrays_are_copied() -> None:
    fixed = np.arange(3)
    fixed.flags.writeable = False
    free = np.arange(3)
    made = writable(Batch(fixed=fixed, free=free))
    assert made['fixed'].flags.writeable and made['fixed'].tolist() == [0, 1, 2] and made['free'] is free


class OddError(Exception):
    def __init__(self, one: int, two: int) -> None:
        super().__init__(f'{one} and {two}')


def thrown(error: Exception) -> Any:
    try:
        raise error
    except Exception as caught:
        return failure_of(caught)


def test_an_exception_keeps_type_message_and_traceback_or_says_them() -> None:
    with pytest.raises(ZeroDivisionError, match=r'^Ray actor 3: by hand\n') as caught:
        raise_failure(thrown(ZeroDivisionError('by hand')), 'Ray actor 3')
    assert 'In Ray actor 3' in caught.value.__notes__[0] and 'in thrown' in caught.value.__notes__[0]
    with pytest.raises(ActorFailedError, match=r'^Ray actor 0: OddError: 1 and 2') as odd:
        raise_failure(thrown(OddError(1, 2)), 'Ray actor 0')
    assert 'in thrown' in odd.value.__notes__[0]
    with pytest.raises(EnvCrashedError, match=r'^env 2: Ray actor 4: it broke; got 1, expected 2') as crashed:
        raise_failure(thrown(EnvCrashedError('it broke', where='env 2', got=1, expected='2')), 'Ray actor 4')
    assert pickle.loads(pickle.dumps(crashed.value)).message == 'Ray actor 4: it broke'
    with pytest.raises(KeyError, match=r'^1') as plain:  # whose argument is no text
        raise_failure(thrown(KeyError(1)), 'Ray actor 4')
    assert 'In Ray actor 4' in plain.value.__notes__[0]


@pytest.mark.parametrize('error', [KeyboardInterrupt(), SystemExit(0)])
def test_what_would_end_the_driver_without_a_word_is_named_instead(error: BaseException) -> None:
    def interrupt(rank: int, incarnation: int) -> Any:
        raise error

    actor = Worker(to_child(interrupt, 'make'), 2, 0, [])
    answer = actor.launch()
    assert isinstance(answer, Failure)
    with pytest.raises(
        ActorFailedError,
        match=f'^Ray actor 2: {type(error).__name__}.* was raised there, not in this process',
    ):
        raise_failure(answer, 'Ray actor 2')


def test_an_actor_that_ray_ends_is_not_kept_alive() -> None:
    def end(rank: int, incarnation: int) -> Any:
        error: Any = SystemExit(1)
        error.ray_terminate_msg = 'The process receives a SIGTERM.'
        raise error

    with pytest.raises(SystemExit):
        Worker(to_child(end, 'make'), 0, 0, []).launch()


def errors_of(policy: str = 'dqn', **collector: Any) -> str:
    main, create = config_pair(policy, collector={'backend': 'ray', **collector})
    with pytest.raises(ConfigError) as caught:
        compile_config(main, create)
    return str(caught.value)


def test_options_that_contradict_each_other_are_refused_with_numbers() -> None:
    text = errors_of(num_collectors=3, remote_configs=[{}, {}])
    assert 'remote_configs has 2 entries, num_collectors is 3' in text
    assert 'max_restarts is set by the backend itself' in errors_of(remote_configs={'max_restarts': 1})
    assert "'num_cpu' is not an option that rlframe passes to Ray. Did you mean 'num_cpus'?" in errors_of(
        remote_configs=[{'num_cpu': 1}]
    )
    assert "Did you mean 'num_gpus'?" in errors_of(ray_init_config={'num_gpu': 1})


def test_fresh_data_in_equal_shares_is_what_an_on_policy_policy_needs_of_actors() -> None:
    assert 'is not divisible by 12; got 64, expected 60 or 72' in errors_of('ppo', num_collectors=3)
    text = errors_of('ppo', sync=False)
    assert 'PPOPolicy learns from fresh data only; got False, expected True' in text
    assert 'These policies correct for the age of the weights: appo, impala.' in text
    compile_config(*config_pair('ppo', collector={'backend': 'ray', 'num_collectors': 2}))


def test_what_needs_the_policy_that_is_trained_stays_in_its_process() -> None:
    main, create = config_pair('dqn')
    main['policy']['eval'] = {'evaluator': {'type': 'metric', 'backend': 'ray'}}
    with pytest.raises(ConfigError, match=r'recorded data are read in this process, not in workers'):
        compile_config(main, create)


@pytest.mark.parametrize('policy', ['impala', 'appo'])
def test_policies_that_correct_for_old_weights_learn_from_actors_that_do_not_wait(policy: str) -> None:
    collector = {'backend': 'ray', 'num_collectors': 2, 'sync': False, 'max_staleness': 3}
    cfg = compile_config(*config_pair(policy, collector=collector))
    assert cfg.policy.collect.collector.max_staleness == 3
