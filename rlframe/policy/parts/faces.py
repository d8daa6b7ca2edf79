"""Faces: what each user of a policy calls, and the state that a policy saves."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from rlframe.data.faces import Acting, CollectMode, CommandMode, EvalMode, Forward, LearnMode, by_env
from rlframe.data.observation import lacks_part
from rlframe.data.timestep import Array, Batch, FloatArray, IntArray
from rlframe.errors import CheckpointMismatchError
from rlframe.policy.parts.actions import obeying
from rlframe.policy.parts.ding_form import in_own_form
from rlframe.policy.parts.fit import learning_parts
from rlframe.policy.parts.normalize import Normalizer
from rlframe.policy.parts.random_policy import random_collect_mode
from rlframe.policy.parts.sequences import keeping_rows
from rlframe.run.checkpoint_tree import compare_states
from rlframe.utils.lazy import torch
from rlframe.utils.schema import DICT, GENERATOR, NETWORK, TENSOR, check_state, part_of
from rlframe.utils.seed import restore_generator

if TYPE_CHECKING:
    from rlframe.policy.update import Update


def learn_mode(policy: Any) -> LearnMode:
    """The functions that update the policy."""
    is_class = policy.spec.action_space.shape == () and hasattr(policy.spec.action_space, 'n')
    have_one = {'reward': not policy.has_own_rewards, 'action': is_class}
    one_a_row = tuple(name for name, is_so in have_one.items() if is_so)
    return LearnMode(
        in_own_form(policy._normalizer.learning(policy._shift.learning(policy.forward_learn)), one_a_row),
        _nothing,
        policy.__repr__,
        partial(list, () if policy.update is None else policy.update.logged),
        policy.get_attribute,
        policy.set_attribute,
        policy._state_dict_learn,
        policy._load_state_dict_learn,
    )


def collect_mode(policy: Any) -> CollectMode:
    """The functions that act to explore, and make training samples; in some envs an expert acts, if there is one."""
    mode = recording(policy, policy.forward_collect)
    return mode if policy.expert is None else policy.expert.beside(mode, policy.spec)


def greedy_collect_mode(policy: Any) -> CollectMode:
    """The functions that act as well as the policy can, whatever the settings, and make training samples."""
    return recording(policy, lambda obs, env_id, **settings: policy.forward_greedy(obs, env_id))


def drawn_collect_mode(policy: Any, rng: np.random.Generator) -> CollectMode:
    """Returns the functions that act at random, and make training samples."""
    return random_collect_mode(policy.collect_mode, policy.spec, rng, policy.is_recurrent)


def recording(policy: Any, forward: Forward) -> CollectMode:
    """Returns a collect face that acts by ``forward``."""
    normalizer = policy._normalizer
    sampling = normalizer.sampling(policy.get_train_sample)
    if policy._on_policy and policy._cfg.collect.get('keep_rows'):
        sampling = partial(keeping_rows, sampling)
    return CollectMode(
        by_env(normalizer.acting(obeying(remembering(forward, policy), policy)), policy.spec),
        normalizer.recording(policy.process_transition),
        sampling,
        normalizer.forgetting(policy.reset_collect),
        policy.get_attribute,
        policy.set_attribute,
        policy._state_dict_model,
        policy._load_model,
    )


def remembering(forward: Forward, policy: Any, is_evaluation: bool = False) -> Forward:
    """Returns a ``forward`` that continues the episodes of its envs with what a policy remembers of them.

    In collection, networks with a core also return the column ``state``: their recurrent states before the actions.
    """
    memory = policy._memory
    if memory is None:
        return forward

    def remembered(obs: Array, env_id: IntArray, **settings: Any) -> Batch:
        before = memory.begin(env_id, is_evaluation)
        output = forward(obs, env_id, **settings)
        return output.replace(state=before) if policy._has_core and not is_evaluation else output

    return remembered


def eval_mode(policy: Any) -> EvalMode:
    """The functions that act as well as the policy can."""
    forward = remembering(policy.forward_eval, policy, is_evaluation=True)
    return EvalMode(
        by_env(policy._normalizer.acting(obeying(forward, policy)), policy.spec),
        policy.reset_eval,
        policy.get_attribute,
        policy.set_attribute,
        policy._state_dict_model,
        policy._load_model,
    )


def command_mode(policy: Any) -> CommandMode:
    """The functions that turn counters into settings."""
    return CommandMode(partial(_follow_schedules, policy.update), policy.get_setting_collect, _no_settings)


def _follow_schedules(update: Update | None, info: Mapping[str, Any]) -> dict[str, Any]:
    """Lets an update follow its schedules, and returns arguments for the learner's ``forward``: none."""
    if update is not None:
        update.set_envstep(info['envstep'])
    return {}


def _no_settings(info: Mapping[str, Any]) -> dict[str, Any]:
    """Returns arguments for the evaluator's ``forward``: none."""
    return {}


def likelihood(policy: Any) -> Callable[[Array, Array], FloatArray] | None:
    """Returns ``log_prob`` of the update, for arrays of rows as they are kept; None if actions have no known probability."""
    is_known = hasattr(policy.update, 'log_prob') and not policy.is_recurrent
    return partial(_log_prob, policy) if is_known else None


def _log_prob(policy: Any, obs: Array, action: Array) -> FloatArray:
    """Returns the logarithms of the probabilities of actions, [M, ...], at observations as the env gives them: float32 [M]."""
    normalize = policy._normalizer.obs
    seen = obs if normalize is None else normalize(np.asarray(obs))
    with torch.inference_mode():
        found: FloatArray = policy.update.log_prob(policy.tensor(seen), policy.tensor(action)).cpu().numpy()
    return found


def data_reader(policy: Any) -> Callable[[Callable[[], Iterable[Batch]]], None] | None:
    """Returns what looks at a pass over recorded data, before any of them are learned from; None: nothing does."""
    return None if policy._on_policy else policy._normalizer.read


def acting(policy: Any) -> Acting:
    """Returns what transfers the state of acting to copies of the policy, and back."""
    state, normalizer = policy.acting, policy._normalizer
    return Acting(state.state_dict, state.load_state_dict, normalizer.state_dict, normalizer.absorb)


ANSWERS: dict[str, Callable[[Any], Any]] = {
    'acting': acting,
    'data_reader': data_reader,
    'likelihood': likelihood,
}
"""Functions that answer questions about any policy, by the names of the attributes."""


def get_attribute(policy: Any, name: str) -> Any:
    """Returns an attribute by name: the result of ``_get_<name>``, an answer, a value that was set, or the option of that name.

    Raises:
        AttributeError: If it does not exist.
    """
    if hasattr(policy, f'_get_{name}'):
        return getattr(policy, f'_get_{name}')()
    if name in ANSWERS:
        return ANSWERS[name](policy)
    for own in (name, f'_{name}'):
        if own in vars(policy):
            return getattr(policy, own)
    for section in (policy._cfg, policy._cfg.collect, policy._cfg.learn):
        if name in section:
            return section[name]
    raise AttributeError(f'{type(policy).__name__} has no attribute {name!r}')


def set_attribute(policy: Any, name: str, value: Any) -> None:
    """Sets a named fact."""
    setattr(policy, name if name in vars(policy) else f'_{name}', value)


def state_dict_learn(policy: Any) -> dict[str, Any]:
    """Returns all that learning and acting change."""
    update = {} if policy.update is None else policy.update.state_dict()
    return {**policy._state_dict_model(), **policy.acting.state_dict(), **update}


def load_state_dict_learn(policy: Any, state: Mapping[str, Any]) -> None:
    """Continues from ``state_dict_learn``; only the network is in states of faces that act."""
    policy.loads += 1
    policy._load_model(state)
    if 'rng' in state:
        policy.acting.load_state_dict(state)
    if policy.update is not None:
        policy.update.load_state_dict(state)


def state_dict_model(policy: Any) -> dict[str, Any]:
    """Returns the network and the normalisation statistics of its observations."""
    return {'model': policy.model.state_dict(), **policy._normalizer.state_dict()}


def load_model(policy: Any, state: Mapping[str, Any]) -> None:
    """Loads the network and the normalisation statistics of its observations.

    Where the observations lack parts that only learning reads, networks that do are missing, and nothing is loaded for them.

    Raises:
        CheckpointMismatchError: If a layer is missing or has another shape; both shapes are named.
    """
    saved = part_of(state, 'model', NETWORK)
    spec = policy.spec
    names = learning_parts(type(policy), spec, policy._cfg)
    if any(lacks_part(spec.observation_space, name) for name in names):
        own = state_dict_model(policy)
        saved = {name: saved[name] for name in saved if name in own['model']}
        statistics = state.get('normalizer', {})
        state = {
            **state,
            'normalizer': {n: statistics[n] for n in statistics if n in own.get('normalizer', {})},
        }
    if differing := compare_states(saved, policy.model.state_dict(), 'model.'):
        raise CheckpointMismatchError(
            'the weights belong to another network: ' + '; '.join(differing), where='policy.model'
        )
    policy._normalizer.load_state_dict(state)
    policy.model.load_state_dict(saved)


def _nothing(env_id: IntArray | None = None) -> None:
    """Resets what learning keeps of episodes: nothing."""


class ActingState:
    """The state of acting, as a part of the state of a policy.

    Layers of the network draw from ``generator``; None: they do not draw.
    """

    def __init__(
        self, normalizer: Normalizer, rng: np.random.Generator, generator: torch.Generator | None
    ) -> None:
        self._normalizer = normalizer
        self._rng = rng
        self._generator = generator
        self.parts: dict[str, Any] = {}
        """What is kept of running episodes by name, with ``state_dict`` and ``load_state_dict``: recurrent states, noise."""

    def state_dict(self) -> dict[str, Any]:
        """Returns a copy of it."""
        state = {**self._normalizer.state_dict(running=True), 'rng': self._rng.bit_generator.state}
        if self._generator is not None:
            state['generator'] = self._generator.get_state()
        return state | {name: own.state_dict() for name, own in self.parts.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from ``state_dict()``."""
        check_state(state, {'rng': GENERATOR} | dict.fromkeys(self.parts, DICT))
        self._normalizer.load_state_dict(state)
        self._rng.bit_generator.state = state['rng']
        if self._generator is not None:
            check_state(state, {'generator': TENSOR})
            restore_generator(self._generator, state['generator'])
        for name, own in self.parts.items():
            own.load_state_dict(state[name])
