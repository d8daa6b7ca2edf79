"""What every registered policy has to do, also those of modules named in ``RLFRAME_IMPORT``.

To check your own: ``RLFRAME_IMPORT=my_module pytest tests/contract/test_policy.py``.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from checked_names import names_of
from error_texts import raises
from moved_memory import moved
from zoo import HybridEnv, IdentityEnv, TargetEnv, Toy

from rlframe.data import Batch, EnvSpec
from rlframe.data.composite import by_rows
from rlframe.envs import BaseEnvManager
from rlframe.errors import ConfigError, DeviceError, IncompatibleError
from rlframe.policy import Policy, create_policy
from rlframe.policy.ppo import ActorPolicy
from rlframe.policy.update import Update
from rlframe.registry import POLICY_REGISTRY
from rlframe.remote.weights import flatten, is_same, unflatten
from rlframe.utils.field import Field
from rlframe.utils.seed import set_seed
from rlframe.worker import SampleSerialCollector, SequenceReplayBuffer

SPECS = {
    'Discrete': EnvSpec(IdentityEnv.observation_space, IdentityEnv.action_space, name='Identity'),
    'Box': EnvSpec(TargetEnv.observation_space, TargetEnv.action_space, name='Target'),
    'Hybrid': EnvSpec(HybridEnv.observation_space, by_rows(HybridEnv.action_space), name='Hybrid'),
}
ENVS = {'Discrete': IdentityEnv, 'Box': TargetEnv, 'Composite': HybridEnv}
Make = Callable[..., Policy]


def spec_for(name: str) -> EnvSpec:
    """Returns a spec that the policy can act in."""
    supported = POLICY_REGISTRY.get(name).supported_actions.split(', ')
    return SPECS[supported[0]]


@pytest.fixture(params=names_of(POLICY_REGISTRY))
def name(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def make(name: str) -> Make:
    """Builds the policy under test."""

    def build(spec: EnvSpec | None = None, seed: int = 0, cfg: Any = None, **kwargs: Any) -> Policy:
        set_seed(seed)
        options = {'type': name, 'device': 'cpu'} | (cfg or {})
        return create_policy(options, spec or spec_for(name), seed=seed, **kwargs)

    return build


class WideEnv(Toy):
    """Gives observations of 17 numbers that are not round; a wide enough product shows in which order it is summed."""

    observation_space = gymnasium.spaces.Box(-3, 3, (17,), np.float32)
    length = 8

    def __init__(self, action_space: gymnasium.Space) -> None:
        self.action_space = action_space

    def obs(self) -> Any:
        return self.np_random.uniform(-1, 1, 17).astype(np.float32)

    def act(self, action: Any) -> Any:
        return float(self.np_random.normal())


def collected(policy: Policy, rows: int = 64, env: BaseEnvManager | None = None) -> Batch:
    """Returns training samples of the toy env."""
    env = env or BaseEnvManager([ENVS[type(policy.spec.action_space).__name__]] * 4)
    settings = policy.command_mode.get_setting_collect({'envstep': 0})
    cfg = {'mark_episodes': policy.is_recurrent}
    collector = SampleSerialCollector(cfg, env, policy.collect_mode)
    data = collector.collect(rows, policy_kwargs=settings)
    if not policy.is_recurrent:
        return data
    buffer = SequenceReplayBuffer(None)
    buffer.push(data, 0)
    return buffer.sample(16, 5, 0)


def train(policy: Policy, data: Batch) -> list[dict[str, Any]]:
    answer = policy.learn_mode.forward(data)
    if isinstance(answer, Mapping):
        return [dict(answer)]
    return [dict(update() if callable(update) else update) for update in answer]


MOST_UPDATES = 30
"""Updates in which a policy, whose parts may learn in turns, has to report each variable."""
STARTS = 'subprocess.Popen', 'os.posix_spawn', 'os.exec', 'os.fork', 'os.system'
"""Events of Python for programs that are started."""
STARTED: list[str] | None = None
"""The programs that were to be started meanwhile; None: nobody counts them."""


def prevent(event: str, args: tuple[Any, ...]) -> None:
    if STARTED is not None and event in STARTS:
        STARTED.append(f'{event} {args[0] if args else ""}')
        raise PermissionError(event)


@pytest.fixture(scope='module')
def _prevented() -> None:
    sys.addaudithook(prevent)  # for good, but it does nothing unless a test counts


def switches(
    options: Mapping[str, Any], path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], Field]]:
    """Yields the options that can be switched on."""
    for key, option in options.items():
        if isinstance(option, Mapping):
            yield from switches(option, (*path, key))
        elif bool in option.types and option.default is not True and not option.ignored:
            yield (*path, key), option


def nested(path: tuple[str, ...], value: Any) -> Any:
    return {path[0]: nested(path[1:], value)} if path else value


TRIED: dict[int, str] = {}
"""Options by identity that an earlier policy tried: policies share most of them."""


@pytest.mark.slow
@pytest.mark.usefixtures('_prevented')
@pytest.mark.filterwarnings('ignore:.torch.jit.script_method:DeprecationWarning')  # torch's own
def test_option_whose_update_starts_a_program_says_that_it_reaches_processes(
    name: str, make: Make, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv('TORCHINDUCTOR_CACHE_DIR', str(tmp_path))
    for path, option in switches(POLICY_REGISTRY.get(name).config_fields()):
        if id(option) in TRIED or path == ('on_policy',):  # of the pipeline: it is the form of the rows
            continue
        started: list[str] = []
        monkeypatch.setattr(sys.modules[__name__], 'STARTED', started)
        with suppress(ConfigError, DeviceError, IncompatibleError):
            policy = make(cfg=nested(path, True))
            TRIED[id(option)] = path[-1]
            train(policy, collected(policy))
        monkeypatch.setattr(sys.modules[__name__], 'STARTED', None)
        assert not started or option.reaches == 'process', (path, started)
        assert option.reaches != 'process' or started or id(option) not in TRIED, f'{path} starts nothing'


def test_weights_are_copied_when_they_are_loaded(make: Make) -> None:
    for face in ('collect_mode', 'eval_mode'):
        given, taking = getattr(make(seed=1), face), getattr(make(), face)
        weights = flatten(given.state_dict())
        assert not is_same(flatten(taking.state_dict()), weights)
        sent = unflatten(weights)
        taking.load_state_dict(sent)
        taken = flatten(taking.state_dict())
        assert is_same(taken, weights)
        for own, other in zip(taken, flatten(sent), strict=True):
            assert not np.shares_memory(own, other)


def test_a_face_alone_can_be_had(make: Make) -> None:
    policy = make(enable_field=('eval',))
    obs = np.stack([policy.spec.observation_space.sample() for _ in range(5)])
    action = policy.eval_mode.forward(obs, np.arange(5))['action']
    assert all(policy.spec.action_space.contains(a) for a in action)
    policy = make(enable_field=('collect',))
    policy.collect_mode.forward(obs, np.arange(5))


def test_training_changes_the_model_and_reports_finite_variables(make: Make, name: str) -> None:
    policy = make(cfg=POLICY_REGISTRY.get(name).toy)
    before = copy.deepcopy(policy.collect_mode.state_dict())['model']
    data = collected(policy)
    missing = set(policy.learn_mode.monitor_vars())
    for _ in range(MOST_UPDATES):
        for variables in train(policy, data):
            assert all(np.isfinite(float(variables[name])) for name in missing & set(variables))
            missing -= set(variables)
        if not missing:
            break
    assert not missing, 'no update reports them'
    after = policy.collect_mode.state_dict()['model']
    assert any(not torch.equal(before[key], after[key]) for key in before)


def test_same_seed_same_actions_and_weights_and_state_continues(make: Make) -> None:
    policy, other, loaded = make(), make(), make(seed=9)
    trained_alike(policy, other)
    loaded.learn_mode.load_state_dict(copy.deepcopy(policy.learn_mode.state_dict()))
    trained_alike(policy, loaded)


def trained_alike(policy: Policy, twin: Policy) -> None:
    """Lets two policies collect and learn, and makes sure that they do the same."""
    data, rows = collected(policy), collected(twin)
    np.testing.assert_array_equal(data['action'], rows['action'])
    train(policy, data), train(twin, rows)
    for key, tensor in policy.collect_mode.state_dict()['model'].items():
        assert torch.equal(tensor, twin.collect_mode.state_dict()['model'][key])


def test_bits_do_not_depend_on_where_arrays_lie_in_memory(make: Make, name: str) -> None:
    spec, offset = spec_for(name), 20
    wide = EnvSpec(gymnasium.spaces.Box(-3, 3, (17,), np.float32), spec.action_space, name='Wide')
    env = BaseEnvManager([partial(WideEnv, spec.action_space)] * 4)
    obs = np.random.default_rng(0).standard_normal((3, 17), np.float32)
    small = {'model': {'encoder_hidden_size_list': [8]}}  # sizes that BLAS sums in an order of its own
    cfg = small if 'encoder_hidden_size_list' in POLICY_REGISTRY.get(name).default_config().model else None
    data = collected(make(wide, cfg=cfg), env=env)
    ends = []
    for begin in (0, offset):
        policy = make(wide, cfg=cfg)
        train(policy, data.map(lambda column, begin=begin: moved(np.asarray(column), begin)))
        settings = policy.command_mode.get_setting_collect({'envstep': 0})
        collects = policy.collect_mode.forward(moved(obs, begin), np.arange(3), **settings)
        plays = policy.eval_mode.forward(moved(obs, begin), np.arange(3))
        columns = [np.array(column) for output in (collects, plays) for _, column in output.items()]
        ends.append([*flatten(policy.learn_mode.state_dict()), *columns])
    assert len(ends[0]) > 4
    for one, other in zip(*ends, strict=True):
        assert one.tobytes() == other.tobytes()


def test_evaluation_draws_nothing(make: Make) -> None:
    policy = make()
    obs = np.stack([policy.spec.observation_space.sample() for _ in range(20)])
    state = copy.deepcopy(policy.learn_mode.state_dict()['rng'])
    torch_state = torch.get_rng_state()
    first = policy.eval_mode.forward(obs, np.arange(20))['action']
    policy.eval_mode.reset(None)
    np.testing.assert_array_equal(first, policy.eval_mode.forward(obs, np.arange(20))['action'])
    assert state == policy.learn_mode.state_dict()['rng'] and torch.equal(torch_state, torch.get_rng_state())


def test_attributes_are_read_and_set_and_unknown_ones_refused(make: Make) -> None:
    mode = make().collect_mode
    assert mode.get_attribute('unroll_len') == 1
    mode.set_attribute('unroll_len', 3)
    assert mode.get_attribute('unroll_len') == 3
    with pytest.raises(AttributeError, match='no_such_thing'):
        mode.get_attribute('no_such_thing')
    assert mode.get_attribute('given_model') is None  # collectors in other processes ask for it


def test_wrong_sizes_spaces_devices_and_keys_are_refused(make: Make, name: str) -> None:
    for key in ('obs_shape', 'action_shape'):
        with raises(ConfigError):
            make(cfg={'model': {key: [17, 3]}})
    with raises(ConfigError):
        make(cfg={'learn': {'batchsize': 3}})
    supported = POLICY_REGISTRY.get(name).supported_actions.split(', ')
    whole = {'Hybrid'} if 'Tuple' in supported else set()
    for kind in sorted(set(SPECS) - whole - set(supported)):
        with raises(IncompatibleError):
            make(SPECS[kind])
    with raises(DeviceError):
        make(cfg={'device': 'cuda:99'})


def test_resetting_some_or_all_envs_is_possible(make: Make) -> None:
    policy = make()
    for face in (policy.learn_mode, policy.collect_mode, policy.eval_mode):
        face.reset(None)
        face.reset(np.array([1, 0]))
        face.reset([0])
    policy.reset_targets()
    assert type(policy).__name__ in policy.learn_mode.info()


def test_a_policy_and_what_it_learns_by_are_at_most_four_classes_deep(name: str) -> None:
    policy: Any = POLICY_REGISTRY.get(name)
    for kind in (policy, policy.update_class):
        kinds = [
            base
            for base in kind.__mro__
            if base.__module__.startswith('rlframe.policy') and base is not Update
        ]
        assert len(kinds) <= 4, 'what policies share is in their body, or a part that they have'


class Net(torch.nn.Module):
    """Has outputs of one size, whatever it is asked for."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.actor = self.critic = self.head = torch.nn.Linear(4, size)
        self.encoder = torch.nn.Identity()

    def logit(self, obs: Any) -> Any:
        return self.head(obs)

    def forward(self, obs: Any) -> Any:
        return self.head(obs)


ACTIONS = {'Discrete': gymnasium.spaces.Discrete(3), 'Box': gymnasium.spaces.Box(-1, 1, (3,), np.float32)}


def test_a_network_whose_output_does_not_fit_the_actions_is_named(name: str) -> None:
    cls = POLICY_REGISTRY.get(name)
    for kind in sorted({*ACTIONS} & {*cls.supported_actions.split(', ')}) if not cls.is_recurrent else ():
        right = 6 if issubclass(cls, ActorPolicy) and kind == 'Box' else 3
        spec = EnvSpec(gymnasium.spaces.Box(-1, 1, (4,), np.float32), ACTIONS[kind])
        create_policy(dict(type=name), spec, model=Net(right), enable_field=['eval'])
        with raises(IncompatibleError):
            create_policy(dict(type=name), spec, model=Net(4))
        wide = EnvSpec(gymnasium.spaces.Box(-1, 1, (7,), np.float32), ACTIONS[kind])
        with raises(IncompatibleError):
            create_policy(dict(type=name), wide, model=Net(right))
