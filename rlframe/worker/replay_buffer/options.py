"""Options that every built-in replay buffer has."""

from __future__ import annotations

from typing import Any, Literal

from rlframe.utils.field import Section, option
from rlframe.worker.replay_buffer.device import DEVICE
from rlframe.worker.replay_buffer.hindsight import HindsightConfig


class BufferConfig(Section):
    """Options of every built-in buffer."""

    replay_buffer_size: int = option(10000, range='[1, inf)', unit='items', doc='Largest number of items')
    device: str = DEVICE
    frames: Literal['auto', 'once', 'copied'] = option(
        'auto',
        doc="How stacked images are kept: 'once' keeps each frame once, 'copied' whole stacks, 'auto' once where"
        ' env.frame_stack stacks uint8 images',
    )
    frame_stack: int = option(
        1,
        range='[1, inf)',
        unit='env steps',
        doc='Frames in an observation, along its first axis; set by env.frame_stack',
    )
    hindsight: HindsightConfig
    init_from: Any = option(
        None,
        doc='recorded data that it begins with, in whole episodes: a path (a folder of Minari or its id, .npz, .parquet, .hdf5),'
        " 'module:name', or a list of these; None: it begins empty",
        may_change=True,
        reaches='code',
    )
    init_share: float = option(
        0.0,
        range='[0, 1)',
        doc='share of each batch that is from these data, which are then kept: 0.5 is symmetric sampling (RLPD). 0: they are'
        ' rows like any others',
    )
    init_updates: int = option(
        0,
        range='[0, inf)',
        unit='train iterations',
        doc='updates from these data alone, before the first env step',
    )
    deepcopy: bool = option(False, doc='Copy objects when pushed and when sampled; columns are always copied')
    enable_track_used_data: bool = option(False, ignored='rows are kept in memory')
    periodic_thruput_seconds: float = option(60.0, range='(0, inf]', ignored='nothing is logged by time')
