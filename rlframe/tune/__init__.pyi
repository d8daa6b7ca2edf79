from rlframe.tune.report import Report as Report
from rlframe.tune.report import write_report as write_report
from rlframe.tune.space import parse_domain as parse_domain
from rlframe.tune.trainable import RLTrainable as RLTrainable
from rlframe.tune.trial import TrialBase as TrialBase
from rlframe.tune.tuner import make_tuner as make_tuner
from rlframe.tune.tuner import restore_tuner as restore_tuner
