"""Checkpoints: folders of tensors and JSON that appear atomically and are loaded without running any code.

``manifest.json`` names every file with its size and SHA-256 and ends with its own, ``state.json`` contains the tree of
plain values and ``tensors.safetensors`` its arrays and tensors. The replay buffer has separate files ``replay_buffer*``
so that it can be left out, and its rows can be written once for several checkpoints.
"""

from rlframe.checkpoint.compare import compare_configs, compare_states
from rlframe.checkpoint.keep import (
    clean_leftovers,
    describe_cost,
    keep,
    link_checkpoint,
    publish_checkpoint,
)
from rlframe.checkpoint.manifest import FORMAT_VERSION, read_manifest
from rlframe.checkpoint.opened import (
    OpenCheckpoint,
    load_checkpoint,
    newest_good,
    open_checkpoint,
    open_newest,
    verify_checkpoint,
)
from rlframe.checkpoint.read import find_checkpoint
from rlframe.checkpoint.rows import Rows
from rlframe.checkpoint.write import save_checkpoint, strip_buffer
from rlframe.utils.checkpoint_options import CHECKPOINT_FIELDS
from rlframe.utils.schema import NETWORK, part_of

__all__ = [
    'CHECKPOINT_FIELDS',
    'FORMAT_VERSION',
    'NETWORK',
    'OpenCheckpoint',
    'Rows',
    'clean_leftovers',
    'compare_configs',
    'compare_states',
    'describe_cost',
    'find_checkpoint',
    'keep',
    'link_checkpoint',
    'load_checkpoint',
    'newest_good',
    'open_checkpoint',
    'open_newest',
    'part_of',
    'publish_checkpoint',
    'read_manifest',
    'save_checkpoint',
    'strip_buffer',
    'verify_checkpoint',
]
