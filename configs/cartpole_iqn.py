"""IQN on CartPole-v1: return 500.0, seeds 0-2 (worst 500.0), 26,056 env steps, 50 s of CPU time."""

main_config = dict(
    exp_name='cartpole_iqn',  # the run folder adds the seed, and a number where it exists already
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
        # sizes of in- and output come from the env
        model=dict(
            encoder_hidden_size_list=[128, 128], dueling=False, num_quantiles=16, quantile_embedding_size=32
        ),
        learn=dict(
            update_per_collect=4,  # train iterations
            batch_size=64,
            learning_rate=1e-3,
            target_update_freq=100,  # train iterations
            learner=dict(hook=dict(log_show_after_iter=200, save_ckpt_after_run=True)),
        ),
        collect=dict(n_sample=8),  # training samples per round, over all envs
        eval=dict(evaluator=dict(eval_freq=1000)),  # train iterations
        other=dict(
            eps=dict(type='exp', start=0.95, end=0.05, decay=1500),  # decay in env steps
            replay_buffer=dict(replay_buffer_size=20000),  # transitions
        ),
    ),
)

create_config = dict(
    import_names=[],  # modules to import so that they register components of your own
    env=dict(type='gym'),
    env_manager=dict(type='base'),
    policy=dict(type='iqn'),
    collector=dict(type='sample'),
    replay_buffer=dict(type='naive'),
)
