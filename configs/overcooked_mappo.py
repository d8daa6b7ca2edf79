"""MAPPO on Overcooked's cramped_room: return 239.9, seeds 0-2 (worst 239.8), 512,000 env steps, 226 s of CPU time.

For another kitchen: `env.kwargs.layout=coordination_ring`.
"""

main_config = dict(
    exp_name='overcooked_mappo',
    max_env_step=512_000,  # of the team
    env=dict(
        env_id='rlframe.envs.team_env:Team',
        kwargs=dict(  # pip install "rlframe[overcooked]"
            game='rlframe.envs.overcooked_game',
            layout='cramped_room',
            old_dynamics=True,  # three onions in a pot cook
        ),
        schedule=dict(
            shaping=dict(type='linear', start=1.0, end=0.0, decay=300_000),
        ),
        collector_env_num=16,
        evaluator_env_num=10,
        n_evaluator_episode=20,
    ),
    policy=dict(
        cuda=False,
        model=dict(
            encoder_hidden_size_list=[64, 64],
            agent_id=False,  # each cook sees itself in the first layers
        ),
        learn=dict(
            epoch_per_collect=8,
            batch_size=1024,
            learning_rate=dict(type='linear', start=1e-3, end=1e-4, decay=512_000),  # env steps
            entropy_weight=0.01,
        ),
        collect=dict(
            n_sample=4096,  # 256 steps of each kitchen
            discount_factor=0.99,
            gae_lambda=0.95,
        ),
        eval=dict(
            deterministic=False,
            evaluator=dict(eval_freq='102400 env steps'),
        ),
    ),
)

create_config = dict(
    env=dict(type='gym'),
    env_manager=dict(type='base'),
    policy=dict(type='mappo'),
    collector=dict(type='sample'),
)
