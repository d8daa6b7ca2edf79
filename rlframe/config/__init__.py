"""Compiles a config file and a command line into one tree in which every key is declared and every value valid.

``reader`` reads files, ``schema`` declares the sections and the options of a run, ``components`` finds the chosen classes and their
options, ``compile`` merges the user's settings and checks them, ``rules`` checks options across components, and ``writer`` writes the
result and compares it with the config of a resumed run. ``trust`` checks what a foreign config may set, and ``ding``
translates DI-engine configs before any of this. Options themselves are declared by the components that read them.
Nothing here imports torch, gymnasium or ray.
"""

from rlframe.config.compile import FORWARDED, compile_config, parse_overrides, parse_value
from rlframe.config.components import full_key, leaf_keys, section_at, value_at
from rlframe.config.ding import Translation, from_ding, is_ding
from rlframe.config.reader import (
    check_env_is_named,
    config_pair,
    own_parts,
    read_config,
    warn_of_own_parts,
    with_env,
)
from rlframe.config.trust import (
    Reaching,
    check_trust,
    config_of,
    declared_reaching,
    foreign_type,
    named_modules,
    reaching_values,
    refuse_or_tell,
)
from rlframe.config.writer import (
    as_played,
    changeable,
    changes_of,
    check_changes,
    config_data,
    modules_of,
    shared_fingerprint,
    split_config,
    unread_user_keys,
    without_parallel,
    write_total_config,
)

__all__ = [
    'FORWARDED',
    'Reaching',
    'Translation',
    'as_played',
    'changeable',
    'changes_of',
    'check_changes',
    'check_env_is_named',
    'check_trust',
    'compile_config',
    'config_data',
    'config_of',
    'config_pair',
    'declared_reaching',
    'foreign_type',
    'from_ding',
    'full_key',
    'is_ding',
    'leaf_keys',
    'modules_of',
    'named_modules',
    'own_parts',
    'parse_overrides',
    'parse_value',
    'reaching_values',
    'read_config',
    'refuse_or_tell',
    'section_at',
    'shared_fingerprint',
    'split_config',
    'unread_user_keys',
    'value_at',
    'warn_of_own_parts',
    'with_env',
    'without_parallel',
    'write_total_config',
]
