"""RLPD from 40 recorded episodes on Pendulum-v1: SAC with layer norm and half of each batch from them."""

main_config = dict(
    exp_name='pendulum_rlpd',
    max_env_step=2_500,
    env=dict(
        env_id='Pendulum-v1',
        collector_env_num=8,
        evaluator_env_num=50,
        n_evaluator_episode=100,
    ),
    policy=dict(
        cuda=False,
        discount_factor=0.98,
        random_collect_size=500,  # training samples
        model=dict(encoder_hidden_size_list=[64, 64], norm='layer'),
        learn=dict(
            update_per_collect=6,  # train iterations
            batch_size=256,
            # large steps at first, since few updates are made; decay in env steps
            learning_rate_actor=dict(type='linear', start=4e-3, end=2e-4, decay=2_500),
            learning_rate_critic=dict(type='linear', start=4e-3, end=2e-4, decay=2_500),
            learning_rate_alpha=1e-3,
            target_theta=0.03,
        ),
        collect=dict(n_sample=8),  # training samples per round, over all envs
        eval=dict(evaluator=dict(eval_freq=420)),  # train iterations: 560 env steps
        other=dict(
            replay_buffer=dict(
                replay_buffer_size=20_000,  # transitions
                init_from='rlframe.envs.recorded_play:pendulum',  # or the path of data
                init_share=0.5,
            ),
        ),
    ),
)

create_config = dict(
    env=dict(type='gym'),
    env_manager=dict(type='base'),
    policy=dict(type='sac'),
    collector=dict(type='sample'),
    replay_buffer=dict(type='naive'),
)
