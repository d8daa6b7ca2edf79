"""ISerialCollector: the interface of every serial collector, and its part that evaluators share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

from easydict import EasyDict

from rlframe.run.metrics import ScalarWriter
from rlframe.run.progress import Progress
from rlframe.utils.field import Configurable


class Resettable(ABC):
    """A collector or an evaluator: both use an env and a face of a policy, which can be replaced."""

    policy_face = 'collect_mode'
    """The face of a policy that it uses."""
    _policy: Any = None

    @abstractmethod
    def reset_env(self, _env: Any = None) -> None:
        """Replaces the env, or resets the current one."""

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
        """Calls ``reset_env`` and ``reset_policy``; counters and scores are kept."""
        self.reset_env(_env)
        self.reset_policy(_policy)


class ISerialCollector(Configurable, Resettable):
    """Turns env steps into training samples, one call at a time.

    A subclass defines ``reset_env``, ``collect``, ``state_dict`` and ``load_state_dict``; everything else has a
    default.

    Args:
        cfg: Options of the collector.
        env: Env manager; can be set later with ``reset_env``.
        policy: Collect face of a policy; can be set later with ``reset_policy``.
        tb_logger: Writes metrics; None writes none. The caller closes it.
        exp_name: Name of the experiment, for the log.
        instance_name: Name of this collector, for the log.
        seed: Seed of the experiment.
        rank: Index of this collector among those of the experiment.
        progress: Counters shared with the other workers; new ones if not given.
    """

    config: dict[str, Any] = {}
    _env: Any = None
    _progress: Progress
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
    ) -> None:
        self._cfg = self.resolve_config(cfg)
        self._tb_logger, self._exp_name, self._instance_name = tb_logger, exp_name, instance_name
        self._seed, self._rank = seed, rank
        self._progress = progress if progress is not None else Progress()
        if env is not None:
            self.reset_env(env)
        if policy is not None:
            self.reset_policy(policy)

    @classmethod
    def open_data(cls, cfg: Mapping[str, Any]) -> Any:
        """Returns the data named by the config, for a collector without envs; None if it steps envs."""
        return None

    @abstractmethod
    def collect(self, per_collect_target: Any) -> Any:
        """Collects and returns training samples or episodes.

        A pipeline passes these arguments, so a subclass must accept them:

        Args:
            per_collect_target: Number of training samples or episodes; None: the policy's attribute ``n_sample`` or
                ``n_episode``.
            train_iter: Train iterations so far.
            policy_kwargs: Arguments of the policy's ``forward``, such as ``eps``.
            random_collect: True if the policy acts at random, before training; only with
                ``policy.random_collect_size``.
            record_random_collect: Whether the metrics include episodes of such a call; with ``random_collect``.

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
