"""SAC with hindsight replay on FetchReach-v4: return -11.0 (EnvPool FetchPush-v4), -1.646 (FetchReach-v4), 1 to 10 seeds, 20,000 to 250,000 env steps, 127 s of CPU time."""

main_config = dict(
    exp_name='fetch_sac',
    max_env_step=20_000,
    env=dict(
        env_id='gymnasium_robotics:FetchReach-v4',  # pip install "rlframe[robotics]"
        collector_env_num=8,
        evaluator_env_num=10,
        n_evaluator_episode=50,
    ),
    policy=dict(
        cuda=False,
        discount_factor=0.95,
        random_collect_size=1000,
        normalize_obs=True,  # goals are centimetres apart
        model=dict(encoder_hidden_size_list=[64, 64]),
        learn=dict(
            update_per_collect=8,  # train iterations
            batch_size=256,
            learning_rate_actor=1e-3,
            learning_rate_critic=1e-3,
            learning_rate_alpha=1e-3,
            init_alpha=0.1,
            target_theta=0.05,
        ),
        collect=dict(n_sample=8, collector=dict(mark_episodes=True)),
        eval=dict(evaluator=dict(eval_freq=3000)),  # train iterations
        other=dict(
            replay_buffer=dict(
                replay_buffer_size=100_000,  # transitions
                hindsight=dict(strategy='future', share=0.8),
            ),
        ),
    ),
)

create_config = dict(
    env=dict(type='gym'),
    env_manager=dict(type='base'),
    policy=dict(type='sac'),
    collector=dict(type='sample'),
    replay_buffer=dict(type='naive'),
)
