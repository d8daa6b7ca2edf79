"""PPO in parallel on CartPole-v1: return 500.0, seeds 0-2 (worst 500.0), 100,352 env steps, 20 s of CPU time."""

main_config = dict(
    exp_name='cartpole_ppo_parallel',  # the run folder adds the seed, and a number where it exists already
    env=dict(
        env_id='CartPole-v1',
        collector_env_num=8,  # of each collector
        evaluator_env_num=50,
        n_evaluator_episode=200,
        stop_value=500,  # the longest episode
    ),
    policy=dict(
        cuda=False,
        model=dict(encoder_hidden_size_list=[64, 64]),  # input and output sizes come from the env
        learn=dict(
            epoch_per_collect=4,
            batch_size=256,
            learning_rate=1e-3,
            entropy_weight=0.0,
        ),
        collect=dict(
            n_sample=1024,  # training samples that a collector sends at a time: 128 steps of each of its 8 envs
            discount_factor=0.98,
            gae_lambda=0.9,
        ),
        eval=dict(evaluator=dict(eval_freq=160)),  # train iterations
        other=dict(commander=dict(collector_task_space=2)),  # collectors that work at the same time
    ),
    parallel=dict(
        collector_num=2,
        coordinator=dict(max_updates_due=0),  # updates: collectors wait while the learner has data
    ),
)

create_config = dict(
    env=dict(type='gym'),
    env_manager=dict(type='base'),
    policy=dict(type='ppo'),
    collector=dict(type='sample'),
    commander=dict(type='solo'),
    comm_collector=dict(type='flask_fs'),
    comm_learner=dict(type='flask_fs'),
)
