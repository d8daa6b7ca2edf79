"""ISerialCollector: the interface of every serial collector, and its part that evaluators share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

from easydict import EasyDict

from rlframe.errors import ConfigError
from rlframe.run.metrics import ScalarWriter
from rlframe.run.progress import Progress
from rlframe.utils.field import Configurable
from rlframe.utils.resolved_config import ResolvedConfig


class Resettable(ABC):
    """A collector or an evaluator: both use an env and a face of a policy, which can be replaced."""

    policy_face = 'collect_mode'
    """The face of a policy that it uses."""
    _policy: Any = None

    @abstractmethod
    def reset_env(self, _env: Any = None) -> None:
        """Replaces the env, or resets the current one."""

    def reset_data(self, data: Any) -> None:
        """Replaces the recorded data, in a worker that uses data instead of envs.

        Raises:
            ConfigError: By default, as a worker that steps envs takes no data.
        """
        raise ConfigError(
            f'{type(self).__name__} steps envs, it reads no recorded data', where='data', got=type(data)
        )

    def reset_policy(self, _policy: Any = None) -> None:
        """Replaces the policy, or resets the current one."""
        if _policy is not None:
            self._policy = _policy
        if self._policy is None:
            raise ValueError(f'reset_policy needs a policy: the {self.policy_face} of one')
        self._policy.reset(None)

    def _attribute(self, name: str, default: Any, policy: Any = None) -> Any:
        """Returns an attribute of a policy, by default of the current one; ``default`` if it does not exist."""
        try:
            return (self._policy if policy is None else policy).get_attribute(name)
        except AttributeError:
            return default

    def reset(self, _policy: Any = None, _env: Any = None) -> None:
        """Calls ``reset_env`` and ``reset_policy``, and begins its own counters and scores anew."""
        self.reset_env(_env)
        self.reset_policy(_policy)
        self._forget_counts()

    @abstractmethod
    def _forget_counts(self) -> None:
        """Begins the counters and scores anew that belong to this worker alone."""


class ISerialCollector(Configurable, Resettable):
    """Turns env steps into training samples, one call at a time.

    A subclass defines ``reset_env``, ``collect``, ``state_dict`` and ``load_state_dict``; everything else has a
    default. It needs no constructor: ``_prepare`` creates its own parts.

    Args:
        cfg: Options of the collector.
        env: Env manager; can be set later with ``reset_env``. A collector that steps no envs accepts its data here, too:
            the public signature has a position for an env only.
        policy: Collect face of a policy; can be set later with ``reset_policy``.
        tb_logger: Writes metrics; None writes none. The caller closes it.
        exp_name: Name of the experiment, for the log.
        instance_name: Name of this collector, for the log.
        seed: Seed of the experiment.
        rank: Index of this collector among those of the experiment.
        progress: Counters shared with the other workers, which ``reset`` keeps; its own if not given.
        data: Recorded data, for a collector that steps no envs; can be set later with ``reset_data``.
    """

    _cfg: ResolvedConfig
    config: dict[str, Any] = {}
    _env: Any = None
    _progress: Progress
    _owns_progress = False
    on_step: Callable[[], None] | None = None
    """Called after each step of the envs, if not None; an exception that it raises ends the run."""
    discarded: int = 0
    """Env steps that were discarded."""

    def __init__(  # noqa: PLR0913  # six are the public signature
        self,
        cfg: EasyDict | Mapping[str, Any] | None,
        env: Any = None,
        policy: Any = None,
        tb_logger: ScalarWriter | None = None,
        exp_name: str = 'default_experiment',
        instance_name: str = 'collector',
        *,
        seed: int = 0,
        rank: int = 0,
        progress: Progress | None = None,
        data: Any = None,
    ) -> None:
        self._cfg = self.resolve_config(cfg)
        self._tb_logger, self._exp_name, self._instance_name = tb_logger, exp_name, instance_name
        self._seed, self._rank = seed, rank
        self._owns_progress = progress is None
        self._progress = progress if progress is not None else Progress()
        self._prepare()
        if env is not None:
            self.reset_env(env)
        elif data is None:
            data = self._data_of_config()
        if data is not None:
            self.reset_data(data)
        if policy is not None:
            self.reset_policy(policy)

    def _prepare(self) -> None:
        """Creates parts that depend on the constructor's other arguments, before envs, data and policy are set."""

    def _data_of_config(self) -> Any:
        """Returns the data that the options name, used if the constructor gets neither envs nor data; None: none."""
        return None

    @classmethod
    def open_data(cls, cfg: Mapping[str, Any]) -> Any:
        """Returns the data named by the config, for the argument ``data``; None if the collector steps envs."""
        return None

    @abstractmethod
    def collect(self, per_collect_target: Any, *args: Any, **settings: Any) -> Any:
        """Collects and returns training samples or episodes.

        A subclass declares what it accepts. A pipeline passes, by name: ``train_iter``, the train iterations so far;
        ``policy_kwargs``, arguments of the policy's ``forward``, such as ``eps``; and, only with
        ``policy.random_collect_size``, before training, ``random_collect=True``, as the policy acts at random, with
        ``record_random_collect``: whether the metrics include the episodes of such a call.

        Args:
            per_collect_target: Number of training samples or episodes; None: the policy's attribute ``n_sample`` or
                ``n_episode``.
            args: Arguments of a subclass.
            settings: Arguments of a subclass, by name.

        Returns:
            Rows as a ``Batch``, or whatever ``training_data`` accepts.
        """

    def training_data(self, collected: Any) -> Any:
        """Returns the part of the result of ``collect`` that goes to the replay buffer or learner."""
        return collected

    @property
    def envstep(self) -> int:
        """Env steps collected so far, over all envs; by default the shared counter, which ``collect`` must increase."""
        return self._progress.envstep

    def _forget_counts(self) -> None:
        """Begins ``envstep`` and the other counters anew, unless other workers share them: those are of the run."""
        if self._owns_progress:
            self._progress.load_state_dict(Progress().state_dict())
        self.discarded = 0

    def mean_return(self) -> float:
        """Returns the mean return of the last episodes, NaN if it is not known."""
        return float('nan')

    def status(self) -> str:
        """Returns text for the progress line in addition to counts and scores; empty by default."""
        return ''

    @property
    def why_inexact(self) -> str:
        """The reason why two runs with the same seed may differ; empty if they cannot."""
        return ''

    @property
    def unsaved(self) -> Mapping[int, str]:
        """Envs whose state could not be saved or restored, with the reasons."""
        return {}

    def settle(self) -> None:
        """Prepares ``state_dict``: episodes that cannot be saved are restarted, here and in the resumed run."""

    @abstractmethod
    def state_dict(self) -> dict[str, Any]:
        """Returns all that the next ``collect`` depends on, as nested dicts and lists of numbers, text and arrays."""

    @abstractmethod
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores the state from ``state_dict()``."""

    def close(self) -> None:
        """Closes the envs; may be called twice."""
        if self._env is not None:
            self._env.close()
