"""DQN by self-play on tictactoe_v3: return 0.773 (EnvPool ConnectFour-v1), 0.943 (tictactoe_v3), seeds 0-2, 100,008 to 300,016 env steps, 101 s of CPU time.

One policy moves for both players and learns from the moves of both; it is scored against random moves.
"""

main_config = dict(
    exp_name='tictactoe_selfplay_dqn',  # the run folder adds the seed, and a number where it exists already
    env=dict(
        env_id='classic.tictactoe_v3',  # of PettingZoo: pip install "rlframe[pettingzoo]"
        collector_env_num=8,
        evaluator_env_num=10,
        n_evaluator_episode=200,  # against random moves, first in every other game
        stop_value=0.93,  # share of games won minus share of games lost
    ),
    policy=dict(
        cuda=False,
        discount_factor=0.95,  # per move of a player; less than 1 favours winning soon
        model=dict(encoder_hidden_size_list=[128, 128], dueling=False),
        learn=dict(
            update_per_collect=4,  # train iterations
            batch_size=128,
            learning_rate=1e-3,
            target_update_freq=200,  # train iterations
            learner=dict(hook=dict(log_show_after_iter=500, save_ckpt_after_run=True)),
        ),
        collect=dict(n_sample=16),  # moves of each player per round, over all envs
        eval=dict(evaluator=dict(eval_freq=2000, opponent='random')),  # train iterations
        other=dict(
            # decay in env steps; random play is to be met
            eps=dict(type='linear', start=1.0, end=0.3, decay=20000),
            replay_buffer=dict(replay_buffer_size=50000),  # moves
        ),
    ),
)

create_config = dict(
    import_names=[],  # modules to import so that they register components of your own
    env=dict(type='pettingzoo'),
    env_manager=dict(type='base'),
    policy=dict(type='dqn'),
    collector=dict(type='sample_1v1'),
    evaluator=dict(type='battle_interaction'),
    replay_buffer=dict(type='naive'),
)
