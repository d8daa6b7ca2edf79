"""DQN on CartPole-v1 with the custom policy, hook and replay buffer from this folder."""

main_config = dict(
    exp_name='cartpole_extended',
    env=dict(env_id='CartPole-v1', stop_value=475),
    policy=dict(
        cuda=False,
        learn=dict(learner=dict(hook=dict(divergence=dict(type='stop_on_divergence')))),
        other=dict(
            temperature=dict(start=1.0, end=0.1, decay=5000),  # decay in env steps
            replay_buffer=dict(mean_age=2000),  # transitions
        ),
    ),
)

create_config = dict(
    import_names=['boltzmann_dqn', 'stop_on_divergence', 'recent_buffer'],
    policy=dict(type='boltzmann_dqn'),
    replay_buffer=dict(type='recent'),
)
