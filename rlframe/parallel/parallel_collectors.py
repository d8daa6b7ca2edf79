"""The parallel collectors: zergling, with one policy, and marine, with the players of a game."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rlframe.data.faces import ActingExtras
from rlframe.parallel.base_parallel_collector import BaseParallelCollector, Evaluation
from rlframe.parallel.coordinator.base_parallel_commander import RANDOM_PLAYER
from rlframe.parallel.held_weights import Acting, ParallelCollectorConfig
from rlframe.parallel.transport.messages import Task
from rlframe.registry import PARALLEL_COLLECTOR_REGISTRY
from rlframe.utils.field import option
from rlframe.worker.collector.remote_collection import Parts


class MarineConfig(ParallelCollectorConfig):
    """Options of ``MarineParallelCollector``."""

    games_per_seat: int = option(
        20, range='[1, inf)', unit='games', doc='number of games of policies that play against each other'
    )


@PARALLEL_COLLECTOR_REGISTRY.register('marine')
class MarineParallelCollector(BaseParallelCollector):
    """Plays games with the policies of a task; only the moves of active ones are recorded.

    A policy that has all seats plays against itself. Otherwise the policies change seats after ``games_per_seat`` games,
    and when other policies come: then the running games are discarded, so that each result belongs to one pair.

    Its factories give ``Parts.trained`` and ``Evaluation.policy`` as lists with a face for each player, and ``random``
    as such a list of faces that act at random.
    """

    _cfg: MarineConfig
    plays_games = True
    _pair: tuple[Any, ...] | None = None
    _pair_evaluated: tuple[str, ...] | None = None
    _shift = _games = _seat = 0

    def _take_seats(self, task: Task) -> None:
        parts = self._collecting()
        player_num = self._collecting().env.spec.player_num
        pair = (tuple(task.policies), tuple(task.active))
        plays_itself = len(set(task.policies)) == 1
        is_new = pair != self._pair
        is_over = not plays_itself and self._games >= self._cfg.games_per_seat
        if task.kind != 'collect' or not (is_new or is_over):
            return
        self._shift = 0 if plays_itself else (self._shift + 1) % player_num
        self._pair = pair
        self._games = 0
        collector: Any = parts.collector
        collector.discarded += collector.carried
        if plays_itself:
            collector.recorded, self._seat = None, 0
            collector.reset_policy(parts.trained[0])
        else:
            slots = [(player + self._shift) % player_num for player in range(player_num)]
            collector.recorded = [task.active[slot] for slot in slots]
            self._seat = collector.recorded.index(True)
            collector.reset_policy([self._face(parts.trained, parts.random, task, slot) for slot in slots])
        collector.reset_env()

    def _face(self, faces: Any, random: Any, task: Task, slot: int) -> Any:
        return random[slot] if task.policies[slot] == RANDOM_PLAYER else faces[slot]

    def _acting(self, faces: Any, task: Task) -> list[Acting]:
        names = task.policies if len(set(task.policies)) > 1 else task.policies[:1]
        acting = [Acting(slot, faces[slot], name) for slot, name in enumerate(names) if name != RANDOM_PLAYER]
        return acting if task.kind == 'evaluate' else sorted(acting, key=lambda a: not task.active[a.slot])

    def _change_policy(self, parts: Parts, at_random: bool) -> None:
        self._pair = None
        if at_random:
            collector: Any = parts.collector
            collector.recorded = None
            collector.reset_policy(parts.random)
            collector.reset_env()
        elif self.task is not None:
            self._take_seats(self.task)

    def _results(self, collected: Any) -> list[str]:
        infos: Sequence[Any] = collected[1][self._seat]
        self._games += len(infos)
        return [info['result'] for info in infos]

    def _seat_evaluated(self, evaluation: Evaluation, task: Task) -> None:
        names = tuple(task.policies)
        if names == self._pair_evaluated:
            return
        self._pair_evaluated = names
        faces = evaluation.policy
        if evaluation.opened is not None and RANDOM_PLAYER not in names:
            faces = evaluation.opened
        if len(names) > 1:
            slots = range(len(names))
            policies: Any = [self._face(faces, evaluation.random, task, slot) for slot in slots]
        else:
            policies = faces[0] if evaluation.random is None else [faces[0], *evaluation.random[1:]]
        evaluation.evaluator.reset_policy(policies)


@PARALLEL_COLLECTOR_REGISTRY.register('zergling')
class ZerglingParallelCollector(BaseParallelCollector):
    """Collects and evaluates with a single policy, which in a game acts for all players."""

    def _take_seats(self, task: Task) -> None:
        """Has nothing to prepare: there is one policy."""

    def _acting(self, faces: Any, task: Task) -> list[Acting]:
        (name,) = task.policies
        return [Acting(0, faces, name)]

    def _measured(self, parts: Parts) -> ActingExtras:
        return ActingExtras(parts.trained, self._weights.in_lockstep)
