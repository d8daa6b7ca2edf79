"""Replay buffers: they store collected data and return random parts of it.

A buffer consists of a storage, which keeps items, and a sampler, which draws them; a custom buffer usually replaces the
sampler. Columns are pushed and sampled as whole arrays, so transitions are never objects.
"""

from rlframe.worker.replay_buffer.advanced_buffer import AdvancedReplayBuffer, ElasticReplayBuffer
from rlframe.worker.replay_buffer.buffer import IBuffer, NaiveReplayBuffer, create_buffer, get_buffer_cls
from rlframe.worker.replay_buffer.episode_buffer import EpisodeReplayBuffer
from rlframe.worker.replay_buffer.ring import ObjectStorage, RingStorage, Sampler, Storage, UniformSampler
from rlframe.worker.replay_buffer.sequence_buffer import SequenceReplayBuffer

__all__ = [
    'AdvancedReplayBuffer',
    'ElasticReplayBuffer',
    'EpisodeReplayBuffer',
    'IBuffer',
    'NaiveReplayBuffer',
    'ObjectStorage',
    'RingStorage',
    'Sampler',
    'SequenceReplayBuffer',
    'Storage',
    'UniformSampler',
    'create_buffer',
    'get_buffer_cls',
]
