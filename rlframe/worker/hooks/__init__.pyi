from rlframe.worker.hooks.builtin_hooks import EarlyStopHook as EarlyStopHook
from rlframe.worker.hooks.builtin_hooks import GradientHistogramHook as GradientHistogramHook
from rlframe.worker.hooks.builtin_hooks import WallClockHook as WallClockHook
from rlframe.worker.hooks.doctor import DoctorHook as DoctorHook
from rlframe.worker.hooks.run_hook import HookList as HookList
from rlframe.worker.hooks.run_hook import RunHook as RunHook
from rlframe.worker.hooks.run_hook import RunView as RunView
