"""SAC with hindsight replay on EnvPool's PointMaze_Medium-v3: return 66.0 (EnvPool PointMaze_Large-v3, actions held for 10 steps), 101.0 (EnvPool PointMaze_Medium-v3, actions held for 5 steps), seeds 0-2, 100,000 to 200,000 env steps, 829 s of CPU time.

Each action is held for five steps of the simulator, so that an episode is 120 decisions in place of 600. The return counts
those at the goal. For the large maze: `env.env_id=PointMaze_Large-v3 env.kwargs.frame_skip=10 env.kwargs.max_episode_steps=80`.
"""

main_config = dict(
    exp_name='pointmaze_sac',
    max_env_step=100_000,
    env=dict(
        env_id='PointMaze_Medium-v3',
        kwargs=dict(frame_skip=5, max_episode_steps=120),  # both are EnvPool's
        collector_env_num=8,
        evaluator_env_num=10,
        n_evaluator_episode=50,
    ),
    policy=dict(
        cuda=False,
        discount_factor=0.98,
        random_collect_size=3000,
        normalize_obs=True,
        model=dict(encoder_hidden_size_list=[128, 128]),
        learn=dict(
            update_per_collect=8,  # train iterations
            batch_size=256,
            learning_rate_actor=5e-4,
            learning_rate_critic=5e-4,
            learning_rate_alpha=5e-4,
            init_alpha=0.1,
            target_theta=0.01,
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
    env_manager=dict(type='env_pool'),
    policy=dict(type='sac'),
    collector=dict(type='sample'),
    replay_buffer=dict(type='naive'),
)
