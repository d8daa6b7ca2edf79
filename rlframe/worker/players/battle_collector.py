"""Collectors of training samples and of episodes for games of several players."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlframe.data.batch import Batch
from rlframe.data.timestep import Array
from rlframe.data.trajectory import TrajectoryRecorder
from rlframe.errors import ConfigError
from rlframe.registry import SERIAL_COLLECTOR_REGISTRY
from rlframe.utils.field import Field
from rlframe.utils.schema import DICT, check_state, part
from rlframe.worker.collector.base_serial_collector import SerialCollector, SerialCollectorConfig
from rlframe.worker.collector.episode_serial_collector import EpisodeCollectorConfig, EpisodeSerialCollector
from rlframe.worker.collector.rollout import Step
from rlframe.worker.collector.serial_collector import SampleSerialCollector
from rlframe.worker.players.joint_policy import JointPolicy, check_flags
from rlframe.worker.players.player_recorder import PlayerRecorder

Infos = list[list[dict[str, Any]]]


class PlayerCollectorConfig(SerialCollectorConfig):
    """Options of every collector of games."""

    record: list[bool] | None


class PlayerCollector(SerialCollector):
    """Shared base of multi-player collectors: a policy and a recorder for each player."""

    _cfg: PlayerCollectorConfig
    _recorder: Any  # a PlayerRecorder
    recorded: list[bool] | None = None
    """For each player, whether its moves are returned, from the next ``reset_env`` on; None: as the config says."""

    config = dict(
        record=Field(
            None, type=list, doc='for each player, whether its moves are returned; None: of all players'
        ),
    )

    def reset_policy(self, _policy: Any = None) -> None:
        """Replaces the policies (one per player, one for all, or a joint one), or resets the current ones."""
        if _policy is not None:
            _policy = _policy if isinstance(_policy, JointPolicy) else JointPolicy(_policy)
            if self._env is not None:
                _policy.sit(self._env.spec, self._env.env_num)
        super().reset_policy(_policy)

    def reset(self, _policy: Any = None, _env: Any = None) -> None:
        if _policy is not None and _env is not None:
            self._policy = self._rollout = None  # they need not fit the new envs
        super().reset(_policy, _env)

    def _begin(self) -> None:
        if self._env is not None and self._policy is not None:
            self._policy.sit(self._env.spec, self._env.env_num)
        super()._begin()

    def _make_recorder(self, env_num: int, policy: Any = None) -> Any:
        player_num = self._policy.player_num
        flags = self._cfg.record if self.recorded is None else self.recorded
        recorded = check_flags(flags, player_num)
        return PlayerRecorder(env_num, player_num, recorded, self._make_rows, self._mark_episodes)

    def _make_rows(self, player: int, env_num: int) -> TrajectoryRecorder:
        """Creates the recorder of one player, as the policy of that player needs it."""
        return super()._make_recorder(env_num, self._policy.policy_of(player))

    def _append(
        self, step: Step, stamp: Array, level_seeds: Array | None, episode_step: Array | None, reserve: int
    ) -> None:
        self._recorder.append(self._policy, step, stamp, reserve)

    def _more_metrics(self) -> dict[str, float]:
        metrics: dict[str, float] = self._recorder.log.metrics()
        return metrics

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), 'players': self._policy.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        check_state(state, {'players': DICT})
        with part('players'):
            self._policy.load_state_dict(state['players'])
        super().load_state_dict(state)

    def training_data(self, collected: Any) -> Any:
        """Returns the samples, or episodes, of all recorded players together."""
        data = [own for own in collected[0] if len(own)]
        if all(isinstance(own, Batch) for own in data):
            return Batch.cat(data)
        return [episode for own in data for episode in own]


@SERIAL_COLLECTOR_REGISTRY.register('sample_1v1')
class BattleSampleSerialCollector(PlayerCollector, SampleSerialCollector):
    """Collects until there are ``n_sample`` training samples of every recorded player.

    ``policy`` is a list with one collect face for each player, or a single one for self-play; with
    ``past_selves.snapshot_freq``, a training run also plays against earlier versions, see ``PastSelves``. A training
    sample is a move, from the player's turn to its next one. Samples beyond ``n_sample``, and moves whose outcome is
    not known yet, are carried over to the next call.
    """

    config = dict(
        past_selves=dict(
            snapshot_freq=Field(
                None,
                type=int,
                range='[1, inf)',
                unit='train iterations',
                doc='between snapshots of the policy, which become its opponents; None: it plays against itself only',
            ),
            keep=Field(
                10,
                range='[1, inf)',
                unit='snapshots',
                doc='that are kept, the newest; each is a network in memory',
            ),
            newest_share=Field(0.5, range='[0, 1]', doc='share of games against the current policy'),
        )
    )

    def collect(  # type: ignore[override]  # the signature that DI-engine's users know
        self,
        n_sample: int | None = None,
        train_iter: int = 0,
        drop_extra: bool = True,
        policy_kwargs: Mapping[str, Any] | None = None,
        *,
        random_collect: bool = False,
        record_random_collect: bool = True,
    ) -> tuple[list[Any], Infos]:
        """Collects training samples.

        Args:
            n_sample: Number of samples of each recorded player; by default, the first policy's ``n_sample``.
            train_iter: Train iterations so far; it becomes the column ``collect_iter``.
            drop_extra: Whether to return exactly ``n_sample`` of each and carry the surplus over, instead of returning
                all.
            policy_kwargs: Arguments of the policies' ``forward``, such as ``eps``.
            random_collect: Whether this call collects at random, before training.
            record_random_collect: Whether episodes of a random call count in the metrics.

        Returns:
            For each player its samples, a ``Batch`` [n_sample] in the order of their completion (an empty list if it is
            not recorded), and for each player a dict per ended episode: ``eval_episode_return``, ``eval_episode_len``
            and ``result``, which is ``win``, ``draw`` or ``loss``.

        Raises:
            EpisodeTooLongError: If an env does not end its episode.
            ValueError: If no number of samples is known, or it is less than 1.
            ConfigError: If the policies learn on-policy.
        """
        if self._policy is not None:
            self._policy.begin_round(train_iter)
        samples: Any = super().collect(
            n_sample, train_iter, drop_extra, random_collect, record_random_collect, policy_kwargs
        )
        return samples, self._recorder.take_infos()

    def _collect_block(
        self, target: int, settings: Mapping[str, Any], stamp: Array, levels: Array | None
    ) -> Batch:
        raise ConfigError(
            'in a turn-based game, players make different numbers of moves, so envs have no blocks of equal length',
            where='policy.collect.collector.type',
            got='sample_1v1',
            expected="'episode_1v1' for a policy that learns on-policy",
            remedy='Set policy.collect.collector.get_train_sample=True as well, and policy.collect.n_episode.',
        )


class BattleEpisodeConfig(PlayerCollectorConfig, EpisodeCollectorConfig):
    """Options of ``BattleEpisodeSerialCollector``."""


@SERIAL_COLLECTOR_REGISTRY.register('episode_1v1')
class BattleEpisodeSerialCollector(PlayerCollector, EpisodeSerialCollector):
    """Collects ``n_episode`` whole episodes, an equal share from each env, and returns each player's moves of them.

    ``policy`` is a list with one collect face for each player, or a single one for self-play.
    """

    _cfg: BattleEpisodeConfig

    def collect(  # type: ignore[override]  # episodes of each player
        self,
        n_episode: int | None = None,
        train_iter: int = 0,
        policy_kwargs: Mapping[str, Any] | None = None,
        *,
        random_collect: bool = False,
        record_random_collect: bool = True,
    ) -> tuple[list[Any], Infos]:
        """Collects whole episodes.

        Args:
            n_episode: Number of episodes; by default, the first policy's ``n_episode``.
            train_iter: Train iterations so far; it becomes the column ``collect_iter``.
            policy_kwargs: Arguments of the policies' ``forward``, such as ``eps``.
            random_collect: Whether this call collects at random, before training.
            record_random_collect: Whether episodes of a random call count in the metrics.

        Returns:
            For each player its part of the episodes in the order in which they ended, each with columns [T, ...] of
            which only the last row is done, or one ``Batch`` of training samples with ``get_train_sample`` (an empty
            list if it is not recorded), and for each player a dict per episode, as from
            ``BattleSampleSerialCollector``.

        Raises:
            EpisodeTooLongError: If an env does not end its episode.
            ValueError: If no number of episodes is known, or it is less than 1.
        """
        episodes: Any = super().collect(
            n_episode,
            train_iter,
            policy_kwargs,
            random_collect=random_collect,
            record_random_collect=record_random_collect,
        )
        return episodes, self._recorder.take_infos()

    def _shaped(self, episodes: Any, policy: Any) -> list[Any]:
        return [
            super(BattleEpisodeSerialCollector, self)._shaped(own, policy.policy_of(player)) if own else []
            for player, own in enumerate(episodes)
        ]
