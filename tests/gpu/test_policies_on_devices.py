"""Every policy in every mode of computing: it learns, resumes exactly, and never makes the host wait.

On a GPU: ``pytest -m gpu``. On the CPU each test is tried with a policy or two, marked slow, to see that it works.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import zoo
from gpu_cells import (
    NO_LOG,
    Cell,
    cells,
    config_of,
    host_waits,
    keeps_transitions,
    updates_of,
    warmed_up,
)
from runs import differences, end_state

import rlframe
from rlframe.data import Batch
from rlframe.export import export_policy
from rlframe.pipeline import SerialPipeline, build, serial_pipeline
from rlframe.pipeline.resume import resume
from rlframe.policy.parts.optim import READ_EVERY

pytestmark = [  # torch's own, of the compiler
    pytest.mark.filterwarnings('ignore:.torch.jit.script_method:DeprecationWarning'),
    pytest.mark.filterwarnings('ignore:TensorFloat32 tensor cores'),
    pytest.mark.filterwarnings('ignore::UserWarning:torch._inductor'),
]
MOST_OPTIMIZERS = 3
"""Of one policy; each reads every ``READ_EVERY`` of its updates whether they were finite."""
ROUNDING = dict(rtol=1e-3, atol=1e-4)
LOSSES = {
    'eager': dict(rtol=0.0, atol=0.0),
    'compile': ROUNDING,
    'cuda_graph': ROUNDING,
    'tf32': dict(rtol=2e-2, atol=2e-2),
    'bf16': dict(rtol=1e-1, atol=5e-2),
    'cuda_graph bf16': dict(rtol=1e-1, atol=5e-2),
}
"""How far the losses of a mode may be from those of 'eager' on the same device."""
COMPARED = 12
"""Updates whose losses are compared."""
DQN, PPO, SAC = ({'eager': [name]} for name in ('dqn', 'ppo', 'sac'))


def on_cells(cpu: dict[str, list[str]], *gpu_modes: str) -> pytest.MarkDecorator:
    """Tries a test on cells, as ``cells`` lists them."""
    return pytest.mark.parametrize('cell', cells(cpu, *gpu_modes), indirect=True)


@on_cells({'eager': ['bc']})
def test_it_learns_its_toy_and_what_is_exported_acts_as_well(cell: Cell) -> None:
    cfg = config_of(
        cell, evaluator=dict(eval_freq=100), max_env_step=12_000 if cell.policy != 'bc' else 10**6
    )
    with SerialPipeline(cfg) as pipeline:
        pipeline.run()
    goal = cfg.env.stop_value
    assert pipeline.stopped and pipeline.evaluator.best >= goal
    assert next(pipeline.policy.model.parameters()).device.type == cell.device
    export_policy(pipeline.folder / 'ckpt' / 'best')
    for device in {None, 'cpu', cell.device}:
        assert mean_return(rlframe.load(pipeline.folder, device=device), cfg.env.env_id) >= goal - 0.5


def mean_return(loaded: Any, env_id: str, episodes: int = 20) -> float:
    """Plays a toy by an exported policy."""
    env, returns = getattr(zoo, env_id.partition(':')[2])(), []
    for seed in range(episodes):
        obs, done, total = env.reset(seed=seed)[0], False, 0.0
        loaded.reset()
        while not done:
            obs, reward, terminated, truncated, _ = env.step(loaded.act(obs))
            total, done = total + reward, terminated or truncated
        returns.append(total)
    return float(np.mean(returns))


@on_cells(SAC)
def test_a_resumed_run_equals_one_that_was_never_interrupted(cell: Cell) -> None:
    saves = dict(learner=dict(hook=dict(save_ckpt_after_iter=10, log_show_after_iter=7)))
    cfg = config_of(cell, learn=saves, max_train_iter=30, checkpoint=dict(keep_last=9))
    with SerialPipeline(cfg) as pipeline:
        pipeline.run()
    first = min((pipeline.folder / 'ckpt').glob('iteration_*'), key=lambda path: int(path.name[10:]))
    assert int(first.name[10:]) < pipeline.progress.train_iter
    torch.manual_seed(9)  # the checkpoint brings the state of the generator with it
    serial_pipeline(None, resume_from=first)
    (resumed,) = {path.parent for path in Path.cwd().glob('*/ckpt')} - {pipeline.folder.resolve()}
    ends = [end_state(folder) for folder in (pipeline.folder, resumed)]
    for end in ends:
        del end['hooks']  # the doctor looks at recent data, which no checkpoint keeps
    assert differences(*ends) == []


@on_cells(PPO)
def test_an_update_never_makes_the_host_wait(cell: Cell) -> None:
    assert_no_wait(cell)


@on_cells(DQN)
def test_an_update_from_a_replay_buffer_on_the_device_makes_it_not_wait_either(cell: Cell) -> None:
    if not keeps_transitions(cell.policy):
        pytest.skip(f'{cell.policy} does not learn from a replay buffer of transitions')
    in_main_memory = dict(normalize_reward=False)  # the default of XQC changes each batch there
    assert_no_wait(cell, buffer=dict(device=cell.device), policy_=in_main_memory)


def assert_no_wait(cell: Cell, **sections: Any) -> None:
    """Updates a policy, and counts the updates that wait but for the check for finite losses.

    On a CPU that check answers at once: it is left out there.
    """
    learn = dict(nan_policy='ignore') if cell.device == 'cpu' else {}
    wanted = READ_EVERY // 5 if cell.device == 'cpu' else 2 * READ_EVERY
    with warmed_up(cell, learn=learn, **sections) as pipeline:
        update, done, waited = updates_of(pipeline), 0, 0
        warm_up(update, cell)
        with host_waits(cell.device) as places:
            while done < wanted:
                before = len(places)
                done += update()
                waited += len(places) > before
    allowed = 0 if cell.device == 'cpu' else MOST_OPTIMIZERS * -(-done // READ_EVERY)
    assert waited <= allowed, f'{waited} of {done} updates waited: {Counter(places).most_common(5)}'


def warm_up(update: Callable[[], int], cell: Cell) -> None:
    """Updates until all is ready that is recorded, compiled or allocated once, also for the hard updates of target networks."""
    done, wanted = 0, 20 if cell.device == 'cpu' else 2 * READ_EVERY
    while done < wanted:
        done += update()


@on_cells({'bf16': ['sac']})
def test_losses_are_those_of_eager(cell: Cell) -> None:
    plain = Cell(cell.policy, 'eager', cell.device)
    with warmed_up(plain) as pipeline:
        rounds = batches_of(pipeline)
    eager, other = (losses(each, rounds) for each in (plain, cell))
    assert len(eager) == COMPARED and np.ptp(eager) > 0
    np.testing.assert_allclose(other, eager, **LOSSES[cell.mode])


def batches_of(pipeline: SerialPipeline) -> list[Batch]:
    """Returns what a policy learns from in its next rounds."""
    buffer, size = pipeline.replay_buffer, pipeline.cfg.policy.learn.batch_size
    if buffer is not None:
        return [batch.map(copied) for batch in buffer.batches(COMPARED, size, pipeline.progress.train_iter)]
    rounds = [pipeline.collector.training_data(pipeline.collector.collect()) for _ in range(COMPARED)]
    return [data.map(copied) for data in rounds]


def copied(column: Any) -> Any:
    return column.clone() if isinstance(column, torch.Tensor) else np.array(column)


def losses(cell: Cell, rounds: list[Batch]) -> list[float]:
    """Returns the losses of the first updates of a new policy."""
    cfg, found = config_of(cell), []
    torch.manual_seed(0)
    policy = build.make_policy(cfg, build.make_factory(cfg).spec)
    for data in rounds:
        answer = policy.learn_mode.forward(data)
        updates = [answer] if isinstance(answer, dict) else (one() for one in answer)
        found += [float(variables['total_loss']) for variables in updates]
        if len(found) >= COMPARED:
            break
    return found[:COMPARED]


@on_cells(PPO, 'eager')
def test_a_run_of_the_cpu_continues_on_the_device_and_back(cell: Cell) -> None:
    learn = dict(learner=dict(hook=NO_LOG['hook'] | dict(save_ckpt_after_run=True)))
    options = dict(learn=learn, max_train_iter=10, evaluator=dict(eval_freq=10))
    with SerialPipeline(config_of(cell._replace(device='cpu'), **options)) as pipeline:
        pipeline.run()
    for device, most in ((cell.device, 20), ('cpu', 30)):
        changed = [f'policy.device={device}', f'max_train_iter={most}']
        found = resume(pipeline.folder, overrides=changed)
        assert found.folder == pipeline.folder
        saved = end_state(pipeline.folder)['policy']
        with SerialPipeline(found.cfg, found.folder, None, found.saved) as resumed:
            assert next(resumed.policy.model.parameters()).device.type == device
            assert differences(on_cpu(resumed.policy.learn_mode.state_dict()), saved) == []
            resumed.run()
        assert resumed.progress.train_iter >= most
        assert all(torch.isfinite(each).all() for each in resumed.policy.model.parameters())


def on_cpu(tree: Any) -> Any:
    """Returns a state with its tensors on the CPU, as a checkpoint has them."""
    if isinstance(tree, dict):
        return {name: on_cpu(part) for name, part in tree.items()}
    return tree.detach().cpu() if isinstance(tree, torch.Tensor) else tree
