"""Writes ``docs/support.md``: the spaces that each policy supports, from the attributes of its class.

usage: python docs/make_support_table.py
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import spaces

from rlframe.data import EnvSpec
from rlframe.data.composite import by_rows
from rlframe.data.observation import ACTION_MASK, mask_parts
from rlframe.policy.parts.fit import misfit
from rlframe.registry import POLICY_REGISTRY

FILE = Path(__file__).with_name('support.md')
HEAD = """# Supported spaces

`python docs/make_support_table.py` generates the table from the policy classes. `tests/contract/test_support.py` trains every policy in
an env of each supported kind; every other kind raises an `IncompatibleError` that names the policies that fit.

- **Observations with parts**: `Dict` and `Tuple` spaces, nested to any depth, are one numpy structured array with a field
  for each key (`'0'`, `'1'`, ... for a tuple), so `obs['camera']` is a column. The network encodes each part and concatenates
  the vectors. Graph, Sequence, OneOf and Text are not supported; convert them with a wrapper.
- **Actions with parts**: `Dict` and `Tuple` spaces of Discrete, MultiDiscrete, MultiBinary and Box, nested to any depth. Each
  part has a distribution of its own. The env gets actions as its space declares them; in recorded data, an action is a row of all its
  numbers (`rlframe.data.composite`).
- **Hybrid actions** are a `Dict` or a `Tuple` of one Discrete, a choice, and Boxes, its parameters. `pdqn` learns the value of each
  choice, `ddpg` and `td3` a score; for exploration, set `policy.other.eps` of these two. A mask forbids choices, not parameters.
- **Images** are Boxes with 3 axes. The channel axis is the smaller one of the first and the last axis, unless
  `policy.model.image_layout` sets it. If it is not shorter than the sides of the image, a warning says how that is read.
  Whole numbers are divided by the largest value of the space, such as 255. `policy.model.conv_layers` lists channels, kernel
  size and stride of each convolution; `[]` reads images as vectors.
- **Stacked frames**: `env.frame_stack=4` gives the policy the last 4 observations along a new first axis; those of images
  become channels. Other wrappers work, too, such as
  `env.wrappers=[dict(type='gymnasium.wrappers:FrameStackObservation', stack_size=4)]`.
- **Action masks**: an env returns `info['action_mask']`, 1 for each allowed action, from `reset` and every `step`, or has a
  field `action_mask` in its `Dict` observation. For `MultiDiscrete`, concatenate the masks of all dimensions; for actions with parts,
  those of the Discrete and MultiDiscrete parts, or nest them in the format of `space.sample(mask)`. To find out whether `info` contains
  a mask, one env is created, reset and closed; set `env.action_mask=True` or `False` to avoid this. Values other than 0 and 1, or a mask
  that allows no action during an episode, raise an `ActionMaskError`.
- **Memory**: `a2c`, `ppo`, `r2d2`, `ddpg`, `td3`, `sac`, `tqc`, `redq` and `sac_discrete` may have a
  [recurrent core](how_to/memory.md) (`policy.model.core`).

## Spaces of each policy

"""
OBS: dict[str, spaces.Space[Any]] = {
    'Box': spaces.Box(-1, 1, (3,), np.float32),
    'Box (image)': spaces.Box(0, 255, (10, 10, 4), np.uint8),
    'Discrete': spaces.Discrete(4),
    'MultiDiscrete': spaces.MultiDiscrete([2, 3]),
    'MultiBinary': spaces.MultiBinary(3),
    'Dict': spaces.Dict(one=spaces.Box(-1, 1, (3,), np.float32), two=spaces.Discrete(4)),
    'Tuple': spaces.Tuple((spaces.Box(-1, 1, (3,), np.float32), spaces.Discrete(4))),
}
ACTIONS: dict[str, spaces.Space[Any]] = {
    'Discrete': spaces.Discrete(4),
    'MultiDiscrete': spaces.MultiDiscrete([2, 2]),
    'MultiBinary': spaces.MultiBinary(2),
    'Box': spaces.Box(-1, 1, (2,), np.float32),
    'Dict': spaces.Dict(choice=spaces.Discrete(3), switches=spaces.MultiBinary(2)),
    'Tuple': spaces.Tuple((spaces.Discrete(3), spaces.MultiBinary(2))),
    'Hybrid': spaces.Tuple((spaces.Discrete(3), spaces.Box(-1, 1, (1,), np.float32))),
}


def main() -> None:
    """Writes the file."""
    FILE.write_text(table(), encoding='utf-8')


def table() -> str:
    """Returns the text of ``docs/support.md``."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for name in POLICY_REGISTRY.names():
        if not POLICY_REGISTRY.is_builtin(name):
            continue
        cells: dict[tuple[str, str], list[str]] = {}
        for obs in OBS:
            cells.setdefault((actions(name, obs, masked=False), actions(name, obs, masked=True)), []).append(
                obs
            )
        for kinds, seen in cells.items():
            groups.setdefault((', '.join(seen), *kinds), []).append(f'`{name}`')
    rows = [f'| {" | ".join([", ".join(names), *texts])} |' for texts, names in groups.items()]
    head = ['| policies | observations | actions | actions with a mask |', '|---|---|---|---|']
    return HEAD + '\n'.join([*head, *rows, ''])


def actions(policy: str, obs: str, *, masked: bool) -> str:
    """Returns the kinds of actions that a policy supports with a kind of observations."""
    kinds = [kind for kind in ACTIONS if not masked or mask_parts(by_rows(ACTIONS[kind]))]
    return ', '.join(kind for kind in kinds if works(policy, obs, kind, masked)) or '-'


def works(policy: str, obs: str, action: str, masked: bool) -> bool:
    """Whether a policy supports these kinds of spaces."""
    space, acting = OBS[obs], by_rows(ACTIONS[action])
    if masked:
        mask = spaces.MultiBinary(sum(mask_parts(acting)))
        space = spaces.Dict({'observation': space, ACTION_MASK: mask})
    cls: Any = POLICY_REGISTRY.get(policy)
    return not misfit(cls, EnvSpec(space, acting))


if __name__ == '__main__':
    main()
