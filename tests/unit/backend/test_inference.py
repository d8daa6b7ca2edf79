"""Inference in one place, without Ray: what a config may say, whom the server waits for, and what shares a pass."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest
from fakes import config_pair
from runs import CASES, ROOT

from rlframe.backend.ray.inference import Answer, InferenceActor, MakeServed
from rlframe.config import compile_config
from rlframe.config.reader import read_config
from rlframe.errors import ConfigError, ConfigErrors
from rlframe.pipeline import build
from rlframe.remote.weights import flatten
from rlframe.remote.worker import Failure
from rlframe.utils.serialize import to_child

INFERENCE, COLLECTOR = 'policy.collect.inference', 'policy.collect.collector'
CENTRAL = ('collector.backend=ray', 'collector.num_collectors=2', 'policy.collect.inference=central')


@pytest.mark.parametrize(
    ('words', 'says'),
    [
        (CENTRAL[2:], (INFERENCE, "got 'central'", "backend='ray'")),
        ((*CENTRAL, 'policy.collect.inference=centre'), (INFERENCE, "'centre'", "'central'")),
        ((*CENTRAL, 'policy.model.noisy=true'), ('policy.model.noisy', 'got True', 'expected False', "'local'")),
        ((*CENTRAL, 'collector.inference_timeout=0'), (f'{COLLECTOR}.inference_timeout', 'got 0', '(0, inf)')),
        ((*CENTRAL, 'collector.inference_timeout=-1'), (f'{COLLECTOR}.inference_timeout', 'got -1', '(0, inf)')),
        ((*CENTRAL, 'collector.inference_batch=0'), (f'{COLLECTOR}.inference_batch', 'got 0', '[1, inf)')),
        ((*CENTRAL, 'collector.inference_batch=3'), (f'{COLLECTOR}.inference_batch', 'got 3', 'at most 2')),
        ((*CENTRAL, "collector.inference_remote_config={'num_gpu': 1}"), ('inference_remote_config', "'num_gpus'?")),
        ((*CENTRAL, 'collector.update_after_each_batch=false'), (f'{COLLECTOR}.update_after_each_batch', 'expected True')),
        ((*CENTRAL[:2], 'collector.inference_batch=2'), (f'{COLLECTOR}.inference_batch', 'got 2', f"{INFERENCE}='central'")),
        (('collector.inference_batch=2',), (f'{COLLECTOR}.inference_batch', "the backend 'ray' has")),
    ],
)  # fmt: skip
def test_what_cannot_work_is_refused_with_what_does(words: tuple[str, ...], says: Any) -> None:
    _, config, *given = CASES['dqn naive']
    with pytest.raises((ConfigError, ConfigErrors)) as caught:
        compile_config(*read_config(str(ROOT / config)), overrides=[*given, *words])
    assert all(text in str(caught.value) for text in says), caught.value
    assert len(str(caught.value).splitlines()) == 1


def test_parallel_mode_says_where_there_is_a_server() -> None:
    with pytest.raises(ConfigError, match=f"{INFERENCE}: .*backend='ray' in serial mode"):
        compile_config(*read_config(str(ROOT / 'configs/cartpole_dqn_parallel.py')), overrides=[CENTRAL[-1]])


class Server(InferenceActor):
    """The server in this process; the sizes of its passes are recorded."""

    def __init__(self, policy: str, seconds: float, batch: int | None) -> None:
        own = dict(backend='ray', num_collectors=3, inference_timeout=seconds, inference_batch=batch)
        cfg = compile_config(
            *config_pair(policy, collect=dict(inference='central', n_sample=48), collector=own)
        )
        make = MakeServed(cfg, build.make_factory(cfg).spec)
        super().__init__(to_child(make, 'make'), 0, 0, ())
        self.passes: list[int] = []
        self.launch()
        self.policy = self._parts.policy

    def _outputs(self, method: str, requests: Any) -> Any:
        self.passes.append(len(requests))
        return super()._outputs(method, requests)

    def __await__(self) -> Any:
        """Returns the weights, like a reference to them."""
        yield
        return flatten(self.policy.collect_mode.state_dict())

    async def begin_all(self, *ranks: int) -> None:
        for rank in ranks:
            assert await self.begin(rank, 1, [self]) == {}


def served(scenario: Any, policy: str = 'dqn', seconds: float = 1000.0, batch: int | None = None) -> None:
    """Runs a scenario with a server in this process; it may take a minute."""
    asyncio.run(asyncio.wait_for(scenario(Server(policy, seconds, batch)), 60))


OBS = np.random.default_rng(0).normal(size=(3, 5, 4)).astype(np.float32)
"""Observations of three collectors with five envs."""


def act(server: Server, rank: int, method: str = '__call__', version: int = 1) -> asyncio.Task[Any]:
    return asyncio.create_task(server.act(rank, version, method, (OBS[rank],)))


async def until_asked(server: Server, count: int) -> None:
    while len(server._asked) < count:
        await asyncio.sleep(0)


def test_requests_of_all_that_collect_share_a_pass_with_the_outputs_of_each_alone() -> None:
    async def scenario(server: Server) -> None:
        await server.begin_all(0, 1, 2)
        first, second = act(server, 0), act(server, 1)
        await until_asked(server, 2)
        assert not first.done() and not second.done()
        answers = await asyncio.gather(first, second, act(server, 2))
        assert server.passes == [3]
        for rank, answer in enumerate(answers):
            assert answer.version == 1
            alone = server.policy.q_value(OBS[rank]).numpy()
            assert answer.output == pytest.approx(alone, abs=1e-6)

    served(scenario)


def test_a_request_alone_has_the_bits_of_a_pass_in_the_process_of_the_collector() -> None:
    async def scenario(server: Server) -> None:
        await server.begin_all(0, 1, 2)
        for rank in (0, 1):  # at most one shares a pass, so nobody waits
            answer = await act(server, rank)
            assert (answer.output == server.policy.q_value(OBS[rank]).numpy()).all()
        assert server.passes == [1, 1]

    served(scenario, batch=1)


def test_one_that_does_not_ask_is_waited_for_once_and_then_when_it_asks_again() -> None:
    async def scenario(server: Server) -> None:
        await server.begin_all(0, 1)
        await act(server, 0)  # collector 1 was killed: the deadline passes
        server._parts = server._parts._replace(seconds=1000.0)
        await act(server, 0)
        assert server.passes == [1, 1]
        back = act(server, 1)
        await until_asked(server, 1)
        await asyncio.gather(back, act(server, 0))
        assert server.passes == [1, 1, 2]
        waiting = act(server, 0)
        await until_asked(server, 1)
        assert not waiting.done()
        await server.leave(1)
        await waiting

    served(scenario, seconds=0.01)


def test_methods_are_not_mixed_and_an_error_is_that_of_all_that_shared_the_pass() -> None:
    async def scenario(server: Server) -> None:
        await server.begin_all(0, 1, 2)
        logit, value, wrong = await asyncio.gather(
            act(server, 0, 'logit'), act(server, 1, 'value'), act(server, 2, 'missing')
        )
        assert (len(logit.output), value.output.shape) == (5, (5,))
        assert isinstance(wrong, Failure) and 'missing' in wrong.text
        for rank in (1, 2):
            await server.leave(rank)
        assert isinstance(await act(server, 0, 'logit'), Answer)

    served(scenario, 'ppo')


def test_a_server_without_the_weights_asks_for_them_and_never_goes_back_to_older_ones() -> None:
    async def scenario(server: Server) -> None:
        assert await server.act(0, 1, '__call__', (OBS[0],)) is None
        assert await server.begin(0, 7, [server]) == {}
        assert await server.begin(1, 6, [server]) == {}
        answers = await asyncio.gather(act(server, 0, version=7), act(server, 1, version=6))
        assert [answer.version for answer in answers] == [7, 7]

    served(scenario)
