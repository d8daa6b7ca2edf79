from rlframe.worker.players.battle_collector import (
    BattleEpisodeSerialCollector as BattleEpisodeSerialCollector,
)
from rlframe.worker.players.battle_collector import BattleSampleSerialCollector as BattleSampleSerialCollector
from rlframe.worker.players.battle_evaluator import (
    BattleInteractionSerialEvaluator as BattleInteractionSerialEvaluator,
)
