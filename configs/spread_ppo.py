"""PPO on simple_spread_v3 of MPE2: return -16.2 (simple_spread_v3), 0.463 (Foraging-5x5-2p-1f-v3), seeds 0-2, 302,400 to 1,502,400 env steps, 154 s of CPU time.

For another game of agents that act at once: `env.kwargs.game=mpe2.simple_tag_v3`.
"""

main_config = dict(
    exp_name='spread_ppo',
    max_env_step=1_500_000,  # of all agents
    env=dict(
        env_id='rlframe.envs.agents:Agents',
        kwargs=dict(game='mpe2.simple_spread_v3'),  # pip install "rlframe[mpe2]"
        collector_env_num=48,  # agents: of 16 games
        evaluator_env_num=30,
        n_evaluator_episode=150,
    ),
    policy=dict(
        cuda=False,
        normalize_obs=True,
        model=dict(encoder_hidden_size_list=[64, 64]),
        learn=dict(
            epoch_per_collect=8,
            batch_size=1200,
            learning_rate=dict(type='linear', start=1e-3, end=1e-5, decay=1_500_000),  # env steps
            value_norm=True,
            entropy_weight=0.01,
        ),
        collect=dict(
            n_sample=4800,  # 100 steps of each agent: four episodes
            discount_factor=0.98,
            gae_lambda=0.95,
        ),
        eval=dict(evaluator=dict(eval_freq=640)),  # train iterations: twenty rounds
    ),
)

create_config = dict(
    env=dict(type='gym'),
    env_manager=dict(type='gym_vector'),
    policy=dict(type='ppo'),
    collector=dict(type='sample'),
)
