"""Acting at random: before a policy has learnt anything, and as an opponent."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from rlframe.data.faces import CollectMode, EvalMode, by_env
from rlframe.data.observation import has_mask, mask_parts
from rlframe.data.timestep import Array, Batch, BoolArray, EnvSpec, IntArray
from rlframe.policy.parts.actions import mask_of, random_allowed
from rlframe.utils.lazy import LazyModule
from rlframe.utils.seed import component_rng

if TYPE_CHECKING:
    import gymnasium
else:
    gymnasium = LazyModule('gymnasium')


def random_collect_mode(
    mode: CollectMode, spec: EnvSpec, rng: np.random.Generator, is_recurrent: bool = False
) -> CollectMode:
    """Returns a collect face whose actions are drawn uniformly from the action space, or from the allowed actions.

    ``mode`` records the transitions; with ``is_recurrent`` its policy sees each step, to update its recurrent state.
    """
    draw = random_actions(spec, rng)

    def forward(obs: Array, env_id: IntArray, **settings: Any) -> Batch:
        said = dict(mode.forward(obs, env_id).items()) if is_recurrent else {}
        for name in ('unit_action', 'is_demo'):  # those of another action
            said.pop(name, None)
        return Batch.unchecked({**said, 'action': draw(obs, len(env_id))}, len(env_id))

    return mode._replace(forward=by_env(forward, spec), acts_at_random=True)


def random_opponent(spec: EnvSpec, seed: int, rank: int = 0) -> EvalMode:
    """Returns a player that chooses uniformly among all actions, or among the allowed ones.

    Its generator is reset whenever all episodes are, so that it acts the same in every evaluation.

    ``spec`` are the spaces of one player, and ``rank`` says which of several opponents it is.
    """
    rng = component_rng(seed, 'opponent', rank)
    draw = random_actions(spec, rng)

    def forward(obs: Array, env_id: IntArray, **settings: Any) -> Batch:
        return Batch.unchecked({'action': draw(obs, len(env_id))}, len(env_id))

    def reset(env_id: IntArray | None) -> None:
        if env_id is None:
            rng.bit_generator.state = component_rng(seed, 'opponent', rank).bit_generator.state

    def get_attribute(name: str) -> Any:
        raise AttributeError(f'a random opponent has no attribute {name!r}')

    def ignore(*given: Any) -> None: ...

    return EvalMode(by_env(forward, spec), reset, get_attribute, ignore, dict, ignore)


def with_opening(mode: EvalMode, mover: EvalMode, spec: EnvSpec, moves: int) -> EvalMode:
    """Returns a player whose first moves of each episode are random, and all others its own.

    ``moves`` moves are those of ``mover``, a random player as of ``random_opponent``.
    """
    made: dict[int, int] = {}  # random moves in the running episode, by env

    def forward(obs: Array, env_id: IntArray, **settings: Any) -> Batch:
        output = mode.forward(obs, env_id)  # also in the opening, for its memory
        counts = [made.get(int(env), 0) for env in env_id]
        opens = np.array(counts) < moves
        if not opens.any():
            return output
        made.update({int(env): count + 1 for env, count in zip(env_id, counts, strict=True)})
        return _replaced(output, opens, mover.forward(obs, env_id)['action'])

    def reset(env_id: IntArray | None) -> None:
        for env in list(made) if env_id is None else env_id:
            made.pop(int(env), None)
        mode.reset(env_id)
        mover.reset(env_id)

    return mode._replace(forward=by_env(forward, spec), reset=reset)


def with_random_actions(
    mode: EvalMode, spec: EnvSpec, share: float, rng: Callable[[], np.random.Generator]
) -> EvalMode:
    """Returns a player that takes a share of its actions at random.

    ``rng`` returns the generator of the running evaluation.
    """

    def forward(obs: Array, env_id: IntArray, **settings: Any) -> Batch:
        output = mode.forward(obs, env_id)
        generator = rng()
        drawn = random_actions(spec, generator)(obs, len(env_id))
        return _replaced(output, generator.random(len(env_id)) < share, drawn)

    return mode._replace(forward=by_env(forward, spec))


def _replaced(output: Batch, chosen: BoolArray, drawn: Array) -> Batch:
    """Returns the actions of an output, the chosen ones, bool [n], replaced by drawn ones, [n, ...]."""
    action = output['action'].copy()
    action[chosen] = drawn[chosen]
    return Batch.unchecked({'action': action}, len(action))


def random_actions(spec: EnvSpec, rng: np.random.Generator) -> Callable[[Array, int], Array]:
    """Returns a function that draws actions of the env [n, ...], allowed ones, for observations [n, ...]."""
    space: Any = spec.action_space
    parts = mask_parts(space) if has_mask(spec.observation_space) else ()

    def draw(obs: Array, count: int) -> Array:
        if parts:
            masks = np.split(mask_of(obs), np.cumsum(parts)[:-1], axis=1)
            chosen = np.stack([random_allowed(mask, rng.random(count)) for mask in masks], 1)
            if hasattr(space, 'is_class'):  # a Composite, whose other parts have no masks
                rows = sampled(count)
                rows[:, space.is_class] = chosen + space.first_class
                return rows
            action: Array = chosen.reshape(-1, *space.shape) + np.asarray(space.start, np.int64)
            return action.astype(space.dtype, copy=False)
        if isinstance(space, gymnasium.spaces.Discrete):
            return (rng.integers(space.n, size=count) + int(space.start)).astype(space.dtype, copy=False)
        if isinstance(space, gymnasium.spaces.Box) and space.dtype.kind in 'iu':
            shape = (count, *space.shape)  # Gymnasium's own draw fails at the largest integers
            return rng.integers(space.low, space.high, shape, space.dtype, endpoint=True)
        return sampled(count)

    def sampled(count: int) -> Array:
        space.seed(int(rng.integers(2**31)))
        return np.stack([space.sample() for _ in range(count)])

    return draw
