"""What a policy suggests for an env that nobody has tuned: where to start, and what to search."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias

from rlframe.data.timestep import EnvSpec

Settings: TypeAlias = dict[str, Any]
"""Options of a section."""
BUFFER_SIZE = 100_000
"""Largest replay buffer, in transitions."""
BUFFER_BYTES = 2 * 2**30
"""Largest replay buffer of transitions with images, in bytes."""


class Facts(NamedTuple):
    """The properties of an env that starting settings depend on."""

    spec: EnvSpec
    """Its spaces."""
    steps: int
    """Env steps that the policy has."""
    has_numbers: bool
    """Whether a part of its observations are real numbers."""
    is_tabular: bool
    """Whether its observations are classes only."""
    is_small: bool
    """Whether its observations are at most four numbers, for which narrow layers do."""
    has_grid: bool
    """Whether all images among its observations are small grids of symbols."""
    row_nbytes: Callable[[EnvSpec], int]
    """Returns the size of a transition in a replay buffer, in bytes."""

    @property
    def buffer_size(self) -> int:
        """Number of transitions that a replay buffer should hold."""
        return min(BUFFER_SIZE, BUFFER_BYTES // self.row_nbytes(self.spec))

    def encoder(self, sizes: list[int]) -> Settings:
        """Returns options of a network with hidden layers of these widths."""
        return dict(encoder_hidden_size_list=sizes, **({'encoder': 'grid'} if self.has_grid else {}))

    def exploration(self, parts: int) -> Settings:
        """Returns a schedule of random actions for the first of so many parts of the budget."""
        return dict(type='linear', start=1.0, end=0.05, decay=max(self.steps // parts, 1))


class SearchSpace(NamedTuple):
    """The options of a policy that are worth a search, and the domains that others search."""

    source: str
    """The paper or library whose domains they are."""
    domains: Mapping[str, str]
    """Keys below ``policy``, with their domains as ``--search`` takes them. Keys that a config does not set are left out, and what
    depends on the budget or on the memory is in none: random steps at the start, the decay of epsilon, sizes of buffers and
    networks."""

    def having(self, domains: Mapping[str, str], source: str = '') -> SearchSpace:
        """Returns the same space with further domains."""
        return SearchSpace(source or self.source, {**self.domains, **domains})

    def without(self, *keys: str, source: str = '') -> SearchSpace:
        """Returns the same space without some keys."""
        domains = {key: domain for key, domain in self.domains.items() if key not in keys}
        return SearchSpace(source or self.source, domains)


ZOO = 'RL Baselines3 Zoo, hyperparams_opt.py of 2025'
DISCOUNTS = 'choice(0.9,0.95,0.98,0.99,0.995,0.999,0.9999)'
COMMON = SearchSpace(
    'common: learning rate, discount factor and batch size',
    {
        'learn.learning_rate': 'loguniform(1e-5,1e-2)',
        'learn.learning_rate_actor': 'loguniform(1e-5,1e-2)',
        'learn.learning_rate_critic': 'loguniform(1e-5,1e-2)',
        'discount_factor': DISCOUNTS,
        'collect.discount_factor': DISCOUNTS,
        'learn.batch_size': 'choice(16,32,64,128,256,512)',
    },
)
"""Of a policy without a space of its own."""
