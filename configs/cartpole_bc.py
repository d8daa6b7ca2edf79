"""Behaviour cloning on CartPole-v1: return 499.4, seeds 0-9 (worst 493.9), 500,000 env steps, 5 s of CPU time.

It clones a controller written by hand, of which 20 episodes are recorded when the run begins; what counts as env steps was
recorded. To score it on records that it was not shown, instead of in episodes, add
evaluator.type=metric evaluator.data=rlframe.envs.cartpole_expert:held_out.
"""

main_config = dict(
    exp_name='cartpole_bc',
    max_env_step=500_000,  # recorded steps read: 50 times all of them
    env=dict(
        env_id='CartPole-v1',
        evaluator_env_num=10,
        n_evaluator_episode=20,
        stop_value=475,  # the env's own reward threshold
    ),
    policy=dict(
        cuda=False,
        model=dict(encoder_hidden_size_list=[64, 64]),
        learn=dict(batch_size=64, learning_rate=1e-3),
        eval=dict(evaluator=dict(eval_freq=500)),  # train iterations
    ),
)

create_config = dict(
    env=dict(type='gym'),
    policy=dict(type='bc'),
    collector=dict(
        type='dataset',
        data='rlframe.envs.cartpole_expert:demonstrations',  # or the path of an .npz file
    ),
)
