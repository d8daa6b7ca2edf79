"""REDQ on Pendulum-v1: return -154.9, seeds 0-2 (worst -156.3), 2,000 env steps, 138 s of CPU time."""

main_config = dict(
    exp_name='pendulum_redq',  # the run folder adds the seed, and a number where it exists already
    max_env_step=2_000,
    env=dict(
        env_id='Pendulum-v1',
        collector_env_num=4,
        evaluator_env_num=50,
        n_evaluator_episode=100,
    ),
    policy=dict(
        cuda=False,
        discount_factor=0.98,
        random_collect_size=500,  # training samples
        model=dict(encoder_hidden_size_list=[64, 64]),  # sizes of in- and output come from the env
        learn=dict(
            update_per_collect=80,  # train iterations: 20 for each env step
            actor_update_freq=20,  # train iterations
            batch_size=256,
            learning_rate_actor=3e-3,
            learning_rate_critic=1e-3,
            learning_rate_alpha=3e-3,
            target_theta=0.01,
            learner=dict(hook=dict(log_show_after_iter=4000, save_ckpt_after_run=True)),
        ),
        collect=dict(n_sample=4),  # training samples per round, over all envs
        eval=dict(evaluator=dict(eval_freq=4000)),  # train iterations: 200 env steps
        other=dict(replay_buffer=dict(replay_buffer_size=2_000)),  # transitions
    ),
)

create_config = dict(
    env=dict(type='gym'),
    env_manager=dict(type='base'),
    policy=dict(type='redq'),
    collector=dict(type='sample'),
    replay_buffer=dict(type='naive'),
)
