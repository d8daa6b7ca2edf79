"""The options of Atari games, and the protocols that set them."""

from __future__ import annotations

import math
import re
from typing import Any, Literal, NamedTuple

from rlframe.envs.base_env import EnvConfig
from rlframe.run.machine import demand_memory
from rlframe.utils.field import REQUIRED, option

MNIH: dict[str, Any] = dict(
    noop_max=30,
    sticky_actions=0.0,
    full_action_space=False,
    life_loss=True,
    reward_clip=True,
    fire_reset=False,
)
PROTOCOLS: dict[str, dict[str, Any]] = {
    'mnih2015': MNIH,
    'baselines': {**MNIH, 'fire_reset': True},
    'machado2018': {
        **MNIH,
        'noop_max': 0,
        'sticky_actions': 0.25,
        'full_action_space': True,
        'life_loss': False,
    },
}
"""Settings of each protocol.

Source: Mnih et al., Human-level control through deep reinforcement learning (2015), Methods; Dhariwal et al., OpenAI
Baselines (2017), ``atari_wrappers.py``; Machado et al., Revisiting the Arcade Learning Environment (2018), section 5.
"""

WITHOUT_FIRE = frozenset((
    'Asterix', 'Backgammon', 'CrazyClimber', 'Freeway', 'Frogger', 'JourneyEscape', 'Koolaid', 'KungFuMaster', 'LostLuggage',
    'MsPacman', 'Pacman', 'Skiing', 'Surround', 'Tutankham', 'VideoCheckers',
))  # fmt: skip
"""Games whose own actions have no FIRE as action 1."""
_ID = re.compile(r'ALE/[A-Z][A-Za-z0-9]*-v5', re.ASCII)
_OTHER_ID = re.compile(
    r'(?:ALE/)?([A-Za-z][A-Za-z0-9]*?)(-ram)?(Deterministic|NoFrameskip)?(?:-v[045])?', re.ASCII
)


def check_game_id(env_id: str) -> str:
    """Describes the expected id if ``env_id`` is no game; else returns an empty string."""
    if _ID.fullmatch(env_id):
        return ''
    match = _OTHER_ID.fullmatch(env_id)
    if match is None:
        return "the id of a game, such as 'ALE/Pong-v5'"
    name = match[1][:1].upper() + match[1][1:]
    if match[3]:
        return f"'ALE/{name}-v5': this id has a frame skip of its own, which env.frame_skip sets"
    return f"'ALE/{name}-v5'"


def is_game_id(env_id: Any) -> bool:
    """Whether this is an id of ALE, without a module."""
    return type(env_id) is str and not check_game_id(env_id)


class AtariConfig(EnvConfig):
    """Options of ``AtariFactory``."""

    env_id: str = option(
        REQUIRED,
        doc="game, such as 'ALE/Pong-v5'",
        check=check_game_id,
        reaches='code',
        harmless=is_game_id,
    )
    protocol: Literal['mnih2015', 'baselines', 'machado2018'] = option(
        'mnih2015',
        doc="protocol that sets the options whose default is None: 'mnih2015' (no-op starts), 'baselines' (the same with"
        " fire_reset, as in SB3 and CleanRL), 'machado2018' (sticky actions, all 18 actions, no end with a life)",
    )
    frame_stack: int = option(
        4,
        range='[1, inf)',
        unit='env steps',
        doc='frames that the policy sees at a time, the newest last, along a new first axis (Mnih et al. 2015)',
    )
    frame_skip: int = option(
        4,
        range='[1, inf)',
        unit='frames',
        doc='number of frames that repeat an action; the last two are merged by their maximum (Mnih et al. 2015)',
    )
    noop_max: int | None = option(
        None,
        range='[0, inf)',
        unit='frames',
        doc='a game begins with 1 to this many no-ops; 0: none (Mnih et al. 2015: 30)',
    )
    sticky_actions: float | None = option(
        None,
        range='[0, 1)',
        doc='probability that a frame repeats the action of the frame before (Machado et al. 2018: 0.25)',
    )
    full_action_space: bool | None = option(
        None,
        doc='whether all 18 actions are available (Machado et al. 2018), not only those that the game uses',
    )
    life_loss: bool | None = option(
        None,
        doc='whether a lost life ends the episode in training, without ending the game (Mnih et al. 2015)',
    )
    reward_clip: bool | None = option(
        None, doc='whether training sees the sign of rewards only (Mnih et al. 2015)'
    )
    fire_reset: bool | None = option(
        None,
        doc='whether episodes begin by FIRE in games that have it (Dhariwal et al., OpenAI Baselines 2017)',
    )
    screen_size: int = option(
        84, range='[1, inf)', unit='pixels', doc='height and width of a frame (Mnih et al. 2015)'
    )
    grayscale: bool = option(True, doc='whether frames are gray; else they are RGB, channels last')
    max_frames: int = option(
        108_000,
        range='[1, inf)',
        unit='frames',
        doc='length at which a game is truncated: 30 minutes as in ALE; Machado et al. (2018) take 18,000',
    )
    mode: int | None = option(
        None, range='[0, inf)', doc='mode of the game (Machado et al. 2018); None: its first'
    )
    difficulty: int | None = option(
        None, range='[0, inf)', doc='difficulty of the game (Machado et al. 2018); None: its first'
    )


class AtariSettings(NamedTuple):
    """The options of a game with the protocol applied."""

    env_id: str
    frame_stack: int
    frame_skip: int
    noop_max: int
    sticky_actions: float
    full_action_space: bool
    life_loss: bool
    """Whether a lost life ends the episode."""
    reward_clip: bool
    fire_reset: bool
    screen_size: int
    grayscale: bool
    max_frames: int
    mode: int | None
    difficulty: int | None

    @property
    def fires(self) -> bool:
        """Whether episodes begin by FIRE, as action 1."""
        name = self.env_id.removeprefix('ALE/').removesuffix('-v5')
        return self.fire_reset and (self.full_action_space or name not in WITHOUT_FIRE)

    @property
    def frame_shape(self) -> tuple[int, ...]:
        """Shape of a frame: [H, W], or [H, W, 3] in colour."""
        size = (self.screen_size, self.screen_size)
        return size if self.grayscale else (*size, 3)


def settings_of(cfg: AtariConfig, is_training: bool) -> AtariSettings:
    """Applies the protocol; without ``is_training``, games are whole and rewards unclipped."""
    values = {name: cfg[name] for name in AtariSettings._fields}
    values |= {name: own for name, own in PROTOCOLS[cfg.protocol].items() if values[name] is None}
    if not is_training:
        values |= dict(life_loss=False, reward_clip=False)
    settings = AtariSettings(**values)
    demand_memory(
        settings.frame_stack * math.prod(settings.frame_shape),
        'a stack of frames',
        'env.screen_size' if settings.frame_stack < settings.screen_size else 'env.frame_stack',
    )
    return settings
