"""From a config file and a command line to one tree in which every key is declared and every value possible.

``reader`` reads files, ``tree`` lays out what the user said, ``schema`` finds the options of the chosen classes, ``rules``
holds what no single component can judge, ``compile`` brings these together, ``writer`` writes the result and ``changes``
compares it to that of a run that is resumed. Nothing here
imports torch, gymnasium or ray.
"""

from rlframe.config.changes import changeable, check_changes, check_code, named_code, without_records
from rlframe.config.compile import FORWARDED, compile_config, split_config, unread_user_keys
from rlframe.config.reader import read_config
from rlframe.config.tree import full_key, parse_overrides, parse_value, section_at
from rlframe.config.writer import config_data, write_total_config

__all__ = [
    'FORWARDED',
    'changeable',
    'check_changes',
    'check_code',
    'compile_config',
    'config_data',
    'full_key',
    'named_code',
    'parse_overrides',
    'parse_value',
    'read_config',
    'section_at',
    'split_config',
    'unread_user_keys',
    'without_records',
    'write_total_config',
]
