"""TD3 on HalfCheetah-v5: return 74.5, seeds 0-2 (worst -2.6), 25,000 of 1,000,000 env steps, 119 s of CPU time."""

main_config = dict(
    exp_name='halfcheetah_td3',  # the run folder adds the seed, and a number where it exists already
    max_env_step=1_000_000,
    env=dict(
        env_id='HalfCheetah-v5',
        collector_env_num=4,
        evaluator_env_num=5,
        n_evaluator_episode=10,
    ),
    policy=dict(
        cuda=False,
        discount_factor=0.99,
        random_collect_size=10_000,  # training samples
        model=dict(encoder_hidden_size_list=[256, 256]),  # sizes of in- and output come from the env
        learn=dict(
            update_per_collect=4,  # train iterations
            batch_size=256,
            learning_rate_actor=3e-4,
            learning_rate_critic=3e-4,
            learner=dict(hook=dict(log_show_after_iter=1000, save_ckpt_after_run=True)),
        ),
        collect=dict(
            n_sample=4,  # training samples per round, over all envs
            noise_sigma=0.1,  # half the range of an action
        ),
        eval=dict(evaluator=dict(eval_freq=10_000)),  # train iterations
        other=dict(replay_buffer=dict(replay_buffer_size=1_000_000)),  # transitions
    ),
)

create_config = dict(
    env=dict(type='gym'),
    env_manager=dict(type='base'),
    policy=dict(type='td3'),
    collector=dict(type='sample'),
    replay_buffer=dict(type='naive'),
)
