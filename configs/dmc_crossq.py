"""CrossQ on tasks of the DeepMind Control Suite: return 437.7 (EnvPool CartpoleSwingup-v1, one reward in two), 264.2 (EnvPool CheetahRun-v1, one reward in two), 434.9 (EnvPool ReacherHard-v1, one reward in two), 480.1 (EnvPool WalkerWalk-v1, one reward in two), 1 to 3 seeds, 50,000 env steps, 671 s of CPU time.

An action is held for two control steps (100,000 frames are 50,000 env steps), and EnvPool returns the reward of the second:
twice the return is that of the suite. Its `frame_skip` counts steps of the simulator: 20 for a walker, 8 for a hopper, 2 for
the cheetah, the reacher and the cart pole. HopperStand-v1 had not begun to learn after 27,500 env steps (one seed).
"""

main_config = dict(
    exp_name='dmc_crossq',
    max_env_step=50_000,
    env=dict(
        env_id='WalkerWalk-v1',
        kwargs=dict(frame_skip=20, max_episode_steps=500),  # both are EnvPool's
        collector_env_num=1,
        evaluator_env_num=10,
        n_evaluator_episode=10,
    ),
    policy=dict(
        cuda=False,
        discount_factor=0.99,
        random_collect_size=2_500,  # training samples
        model=dict(encoder_hidden_size_list=[256, 256]),
        learn=dict(
            update_per_collect=1,  # train iterations: one for each env step
            batch_size=256,
            init_alpha=0.1,
            learner=dict(hook=dict(log_show_after_iter=1000, save_ckpt_after_run=True)),
        ),
        collect=dict(n_sample=1),  # training samples per round, over all envs
        eval=dict(evaluator=dict(eval_freq=5_000)),  # train iterations
        other=dict(replay_buffer=dict(replay_buffer_size=100_000)),  # transitions
    ),
)

create_config = dict(
    env=dict(type='gym'),
    env_manager=dict(type='env_pool', num_threads=1),
    policy=dict(type='crossq'),
    collector=dict(type='sample'),
    replay_buffer=dict(type='naive'),
)
