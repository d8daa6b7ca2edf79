"""DatasetSerialCollector: training samples from recorded data instead of from envs."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from rlframe.data.dataset import COLLECTOR_DATA, DATA_FORMS, open_data, selection_of
from rlframe.data.formats import LIMIT
from rlframe.data.sources import DataSource
from rlframe.data.timestep import Batch
from rlframe.registry import SERIAL_COLLECTOR_REGISTRY
from rlframe.utils.field import Section, option
from rlframe.utils.lazy import LazyModule
from rlframe.utils.schema import COUNT, GENERATOR, TENSOR, check_state, part, tensor_like
from rlframe.utils.seed import component_rng, preserved_rng
from rlframe.utils.serialize import checked_bits
from rlframe.worker.collector.base_serial_collector import ISerialCollector

torch = LazyModule('torch')

READ_AT_ONCE = 4096
"""Rows of a batch that the policy only looks at."""
STATE = {'rng': GENERATOR, 'torch': TENSOR, 'read': COUNT, 'size': COUNT}


class DatasetCollectorConfig(Section):
    """Options of ``DatasetSerialCollector``."""

    data: Any = option(None, doc=DATA_FORMS, may_change=True, reaches='code')
    top: float = option(
        1.0,
        range='(0, 1]',
        doc='share of the episodes that are read, those with the highest returns: 0.1 is 10 %BC',
    )
    held_out: float = option(
        0.0, range='[0, 1)', doc='share of the episodes that are kept apart, to evaluate on them'
    )
    mix: list[float] | None = option(
        None, doc='with several data: share of a batch that is from each; None: by their rows'
    )
    memory: float = option(
        LIMIT,
        range='(0, inf)',
        unit='GiB',
        doc='that the data may occupy in memory; more is read from disk, in blocks whose order is random',
    )


@SERIAL_COLLECTOR_REGISTRY.register('dataset')
class DatasetSerialCollector(ISerialCollector):
    """Iterates over recorded data, one batch per call, each pass in a new order.

    No env is stepped; ``data`` is whatever the option ``data`` may be, or a ``DataSource``. The order of the data follows
    from the seed. Nothing is logged. ``envstep`` counts the recorded env steps that were read, including repeated
    reads, so that budgets, schedules and charts keep their unit. The policy makes training samples from a block [1, B,
    ...], as after a round of collection; its attribute ``batch_size`` is B.
    """

    _cfg: DatasetCollectorConfig

    def _prepare(self) -> None:
        self._rng = component_rng(self._seed, 'dataset', self._rank)
        self._data: DataSource | None = None
        self._form: DataSource | None = None  # the data as the policy learns from them

    def _data_of_config(self) -> Any:
        return self._cfg.data

    @classmethod
    def open_data(cls, cfg: Mapping[str, Any]) -> DataSource:
        return open_data(cfg['data'], COLLECTOR_DATA, selection_of(cfg))

    def reset_env(self, _env: Any = None) -> None:
        """Begins a new pass, over the data given in place of an env or over the current ones."""
        if _env is not None:
            self.reset_data(_env)
        else:
            self._begin_pass()

    def reset_data(self, data: Any) -> None:
        self._data = open_data(data, COLLECTOR_DATA, selection_of(self._cfg))
        self._form = None
        self._begin_pass()

    def _begin_pass(self) -> None:
        """Stores the states of the generators that determine the order of a pass."""
        self._rng_state = copy.deepcopy(self._rng.bit_generator.state)
        self._torch_state = torch.get_rng_state()
        self._pass: Iterator[Batch] | None = None
        self._read, self._size = 0, 0  # batches of this pass so far, and rows of each

    def _next(self, size: int) -> Batch | None:
        if self._data is None:
            raise ValueError('collect needs data; give them to the constructor or to reset_data')
        if self._pass is None:
            self._size = size
            self._let_read(self._data)
            self._pass = self._formed(self._data).batches(size, self._rng)
        return next(self._pass, None)

    def _formed(self, data: DataSource) -> DataSource:
        """Returns the data as the policy learns from them."""
        if self._form is None:
            form = self._attribute('data_form', None)
            self._form = data if form is None else form(data)
        return self._form

    def _let_read(self, data: DataSource) -> None:
        """Lets the policy look at all of the data, in an order that changes no other."""
        reader = self._attribute('data_reader', None)
        if reader is not None:
            with preserved_rng():
                reader(lambda: data.batches(READ_AT_ONCE, np.random.default_rng(0)))

    def collect(
        self, n_sample: int | None = None, train_iter: int = 0, policy_kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Reads the next batch.

        Args:
            n_sample: Number of rows; by default, the policy's ``batch_size``. Data that come as batches keep their
                size.
            train_iter: Train iterations so far; it becomes the column ``collect_iter``.
            policy_kwargs: Has no effect.

        Returns:
            Training samples made by the policy.

        Raises:
            ValueError: If there are no data.
        """
        if self._policy is None:
            raise ValueError('collect needs a policy; give it to the constructor or to reset()')
        size = int(n_sample or self._policy.get_attribute('batch_size'))
        batch = self._next(size)
        if batch is None:
            self._begin_pass()
            batch = self._next(size)
        if batch is None:
            raise ValueError('the data contain no rows')
        self._read += 1
        self._progress.envstep += len(batch)
        if self.on_step is not None:
            self.on_step()
        stamped = batch.replace(collect_iter=np.full(len(batch), train_iter, np.int32))
        return self._policy.get_train_sample(stamped.map(lambda column: column[None]))

    def close(self) -> None:
        if self._data is not None:
            self._data.close()

    def state_dict(self) -> dict[str, Any]:
        return {
            'rng': copy.deepcopy(self._rng_state),
            'torch': self._torch_state.clone(),
            'read': self._read,
            'size': self._size,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from ``state_dict()``, with the same data."""
        check_state(state, {**STATE, 'torch': tensor_like(torch.get_rng_state())})
        self._rng.bit_generator.state = copy.deepcopy(checked_bits(state['rng']))
        self._begin_pass()
        self._torch_state = state['torch'].clone()
        self._read = state['read']
        self._size = state['size']
        if self._read and self._data is not None:
            with preserved_rng(), part('torch'):
                torch.set_rng_state(self._torch_state)
                self._pass = self._formed(self._data).batches(self._size, self._rng, self._read)
