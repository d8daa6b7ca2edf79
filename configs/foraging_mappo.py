"""MAPPO on Foraging-8x8-2p-2f-coop-v3: return 0.943 (Foraging-10x10-3p-3f-v3), 0.990 (Foraging-8x8-2p-2f-coop-v3), seeds 0-2, 1,501,184 to 3,000,320 env steps, 1,005 s of CPU time.

For another team: `env.kwargs.game=mpe2.simple_spread_v3 env.stop_value=never`.
"""

main_config = dict(
    exp_name='foraging_mappo',
    max_env_step=1_500_000,  # of the team
    env=dict(
        env_id='rlframe.envs.team_env:Team',
        kwargs=dict(game='lbforaging:Foraging-8x8-2p-2f-coop-v3'),  # pip install "rlframe[lbforaging]"
        collector_env_num=16,
        evaluator_env_num=10,
        n_evaluator_episode=100,
        stop_value=0.97,  # 1 is all food
    ),
    policy=dict(
        cuda=False,
        normalize_obs=True,
        model=dict(encoder_hidden_size_list=[128, 128]),
        learn=dict(
            epoch_per_collect=8,
            batch_size=512,
            learning_rate=1e-3,
            entropy_weight=0.01,
        ),
        collect=dict(
            n_sample=2048,  # 128 steps of each team
            discount_factor=0.99,
            gae_lambda=0.95,
        ),
        eval=dict(
            deterministic=False,  # teams whose best actions are always the same may block each other
            evaluator=dict(eval_freq=1600),  # train iterations: fifty rounds
        ),
    ),
)

create_config = dict(
    env=dict(type='gym'),
    env_manager=dict(type='base'),
    policy=dict(type='mappo'),
    collector=dict(type='sample'),
)
