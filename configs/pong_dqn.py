"""DQN on Pong: not measured yet.

Games as Mnih et al. (2015) set them, 84 x 84 gray pixels and 4 frames, in ALE's own threads.
"""

from easydict import EasyDict

main_config = EasyDict(
    dict(
        exp_name='pong_dqn',  # the run folder adds the seed, and a number where it exists already
        max_env_step=2_000_000,
        env=dict(
            env_id='ALE/Pong-v5',
            protocol='mnih2015',  # no-op starts, and in training an end with each life and clipped rewards
            collector_env_num=8,
            evaluator_env_num=5,
            n_evaluator_episode=10,
            stop_value=20,  # of 21
        ),
        policy=dict(
            cuda=False,
            discount_factor=0.99,
            nstep=3,
            random_collect_size=10_000,
            model=dict(encoder='nature', encoder_hidden_size_list=[512], dueling=False),
            learn=dict(
                update_per_collect=2,  # train iterations
                batch_size=32,
                learning_rate=1e-4,
                target_update_freq=1000,  # train iterations
                grad_clip_norm=10.0,
                learner=dict(hook=dict(log_show_after_iter=500, save_ckpt_after_run=True)),
            ),
            collect=dict(n_sample=8),  # training samples per round, over all envs
            eval=dict(evaluator=dict(eval_freq=25_000)),  # train iterations
            other=dict(
                eps=dict(type='linear', start=1.0, end=0.01, decay=100_000),  # decay in env steps
                replay_buffer=dict(replay_buffer_size=100_000),  # transitions
            ),
        ),
    )
)

create_config = EasyDict(
    dict(
        import_names=[],  # modules to import so that they register components of your own
        env=dict(type='atari'),
        env_manager=dict(type='gym_vector'),
        policy=dict(type='dqn'),
        collector=dict(type='sample'),
        replay_buffer=dict(type='naive'),
    )
)
