"""Collection and evaluation with several players: battles, joint policies and past selves."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlframe.utils.lazy import lazy_exports

if TYPE_CHECKING:
    from rlframe.worker.players.battle_collector import (
        BattleEpisodeSerialCollector,
        BattleSampleSerialCollector,
    )
    from rlframe.worker.players.battle_evaluator import BattleInteractionSerialEvaluator

__all__ = [
    'BattleEpisodeSerialCollector',
    'BattleInteractionSerialEvaluator',
    'BattleSampleSerialCollector',
]
__getattr__ = lazy_exports(
    __name__,
    {
        'BattleEpisodeSerialCollector': 'rlframe.worker.players.battle_collector',
        'BattleSampleSerialCollector': 'rlframe.worker.players.battle_collector',
        'BattleInteractionSerialEvaluator': 'rlframe.worker.players.battle_evaluator',
    },
)
