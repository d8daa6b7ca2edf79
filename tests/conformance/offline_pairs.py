"""The offline learners that rlframe and d3rlpy both have: which options make their updates equal."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from typing import Any


@dataclasses.dataclass(frozen=True)
class OfflinePair:
    """An update of ours and one of d3rlpy's.

    Args:
        row: Our policy; its row in docs/conformance.md.
        peer: Their learner.
        losses: What they return, to what we log and a factor of ours.
        ours: Options that make the updates equal, by their keys behind ``policy.``; the page names them.
        theirs: Arguments of theirs that do; it names them, too.
        classes: Discrete actions; None: actions are numbers.
        start: Updates that theirs has counted before the first one.
        same: Options that mean the same, to their names there and a value that is no default.
        variant: Tells several pairs of a row apart.
    """

    row: str
    peer: str
    losses: Mapping[str, tuple[str, float]]
    ours: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    theirs: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    classes: int | None = None
    start: int = 0
    same: Mapping[str, tuple[str, Any]] = dataclasses.field(default_factory=dict)
    variant: str = ''

    @property
    def name(self) -> str:
        """Name of the pair, of which there is one."""
        return self.row.replace('`', '') + self.variant

    @property
    def policy(self) -> str:
        """Registered name of our policy."""
        return re.findall(r'`(\w+)`', self.row)[0]


ROWS_OF_BATCH = 16
ACTOR_AND_CRITICS = {'critic_loss': ('critic_loss', 1.0), 'actor_loss': ('actor_loss', 1.0)}
IMITATION = {'bc_loss': ('bc_loss', 1.0)}
VALUES = {'discount_factor': ('gamma', 0.875), 'learn.target_theta': ('tau', 0.02)}
NEARBY = VALUES | {
    'learn.target_noise': ('target_smoothing_sigma', 0.3),
    'learn.target_noise_clip': ('target_smoothing_clip', 0.2),
}
DISCRETE_OURS = {
    'model.dueling': False,
    'discount_factor': 0.99,
    'learn.kappa': 1.0,
    'learn.learning_rate': 6.25e-5,
    'learn.target_update_freq': 2,
}

DEFAULT_PAIRS = [
    OfflinePair(
        '`td3_bc`',
        'TD3PlusBC',
        ACTOR_AND_CRITICS | IMITATION,
        same=NEARBY
        | {'learn.alpha': ('alpha', 1.5), 'learn.actor_update_freq': ('update_actor_interval', 3)},
    ),
    OfflinePair(
        '`rebrac`',
        'ReBRAC',
        ACTOR_AND_CRITICS | IMITATION,
        ours={'learn.actor_beta': 0.001},
        theirs={'critic_encoder_factory': {'use_layer_norm': True}},
        same=NEARBY | {'learn.actor_beta': ('actor_beta', 0.5), 'learn.critic_beta': ('critic_beta', 0.25)},
    ),
    OfflinePair(
        '`iql`',
        'IQL',
        {'q_loss': ('critic_loss', 1.0), 'v_loss': ('value_loss', 1.0), 'actor_loss': ('actor_loss', 1.0)},
        same=VALUES
        | {
            'learn.expectile': ('expectile', 0.9),
            'learn.beta': ('weight_temp', 2.0),
            'learn.max_weight': ('max_weight', 0.5),
        },
    ),
    OfflinePair(
        '`awac`',
        'AWAC',
        ACTOR_AND_CRITICS | {'actor_loss': ('actor_loss', float(ROWS_OF_BATCH))},
        same=VALUES | {'learn.temperature': ('lam', 0.3), 'model.n_critic': ('n_critics', 3)},
    ),
    OfflinePair(
        '`cql`',
        'CQL',
        ACTOR_AND_CRITICS | {'conservative_loss': ('conservative_gap', 5.0)},
        ours={'learn.num_actions': 10, 'learn.alpha': 1.0},
        theirs={'temp_learning_rate': 0.0, 'alpha_learning_rate': 0.0, 'alpha_threshold': 0.0},
        same=VALUES
        | {
            'learn.num_actions': ('n_action_samples', 3),
            'learn.alpha': ('initial_temperature', 0.2),
            'learn.learning_rate_actor': ('actor_learning_rate', 1e-3),
            'learn.learning_rate_critic': ('critic_learning_rate', 2e-3),
        },
    ),
    OfflinePair(
        '`discrete_cql`',
        'DiscreteCQL',
        {'loss': ('total_loss', 1.0), 'conservative_loss': ('conservative_gap', 1.0)},
        ours=DISCRETE_OURS,
        theirs={'target_update_interval': 2},
        classes=3,
        start=1,
        same={'discount_factor': ('gamma', 0.875), 'learn.conservative_weight': ('alpha', 0.3)},
    ),
    OfflinePair(
        '`bcq`',
        'BCQ',
        ACTOR_AND_CRITICS | {'vae_loss': ('vae_loss', 1.0)},
        theirs={'n_action_samples': 10},
        same=VALUES
        | {
            'model.phi': ('action_flexibility', 0.5),
            'learn.least_weight': ('lam', 0.4),
            'learn.num_actions': ('n_action_samples', 4),
            'learn.learning_rate_vae': ('imitator_learning_rate', 2e-3),
        },
    ),
    OfflinePair(
        '`discrete_bcq`',
        'DiscreteBCQ',
        {'loss': ('total_loss', 1.0)},
        ours=DISCRETE_OURS,
        theirs={'beta': 0.01, 'share_encoder': False, 'target_update_interval': 2},
        classes=3,
        start=1,
        same={
            'discount_factor': ('gamma', 0.875),
            'learn.threshold': ('action_flexibility', 0.9),
            'learn.logit_decay': ('beta', 0.3),
        },
    ),
    OfflinePair(
        '`bc`',
        'BC',
        {'loss': ('total_loss', 1.0)},
        same={'learn.learning_rate': ('learning_rate', 3e-3)},
    ),
    OfflinePair(
        '`bc` of classes', 'DiscreteBC', {'loss': ('total_loss', 1.0)}, theirs={'beta': 0.0}, classes=3
    ),
]


def with_other_values(pair: OfflinePair) -> OfflinePair:
    """Returns a pair whose options that mean the same are not at their defaults."""
    return dataclasses.replace(
        pair,
        variant=' with other values',
        ours={**pair.ours, **{name: value for name, (_, value) in pair.same.items()}},
        theirs={**pair.theirs, **dict(pair.same.values())},
    )


OFFLINE_PAIRS = [*DEFAULT_PAIRS, *(with_other_values(pair) for pair in DEFAULT_PAIRS if pair.same)]
