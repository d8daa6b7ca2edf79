"""PPO with tensors on CartPole-v1: return 499.9, seeds 0-9 (worst 499.1), 503,808 env steps, 10 s of CPU time.

The envs are simulated by torch, on a GPU if there is one.
"""

main_config = dict(
    exp_name='cartpole_torch_ppo',  # the run folder adds the seed, and a number where it exists already
    max_env_step=500_000,
    env=dict(
        env_id='rlframe.envs.tensor:TorchCartPole',
        collector_env_num=128,  # a GPU steps thousands as fast
        evaluator_env_num=50,
        n_evaluator_episode=100,
        stop_value=500,  # the longest episode
    ),
    policy=dict(
        device='auto',  # that of the envs: env.kwargs.device, which is 'auto' as well
        model=dict(encoder_hidden_size_list=[64, 64]),
        learn=dict(
            epoch_per_collect=4,
            batch_size=512,
            learning_rate=dict(type='linear', start=2e-3, end=0.0, decay=500_000),  # decay in env steps
            entropy_weight=0.0,
        ),
        collect=dict(
            n_sample=4096,  # training samples per round: 32 steps of each of 128 envs
            discount_factor=0.98,
            gae_lambda=0.8,
        ),
        eval=dict(evaluator=dict(eval_freq=320)),  # train iterations: 40,960 env steps
    ),
)

create_config = dict(
    env=dict(type='gym'),
    env_manager=dict(type='torch_vector'),
    policy=dict(type='ppo'),
    collector=dict(type='tensor'),
)
