"""W4 of the peers: PPO on CartPole-v1, 8 envs x 128 steps a round, 4 epochs of minibatches of 256.

Actor and critic MLPs 64-64 tanh, Adam 2.5e-4, discount 0.99, lambda 0.95, clip 0.2, value weight 0.5, entropy weight
0.01, gradient norm at most 0.5. Seconds of the training loop alone.

usage: w4_ppo.py limit|sb3|tianshou|ding [ENV_STEPS]
"""

from time import perf_counter

import torch
from harness import cartpoles, quiet, run
from torch import nn
from torch.distributions import Categorical

ENV_NUM, STEPS, EPOCHS, MINIBATCH = 8, 128, 4, 256
GAMMA, LAMBDA, CLIP, VALUE_WEIGHT, ENTROPY_WEIGHT, GRAD_NORM, LEARNING_RATE = (
    0.99,
    0.95,
    0.2,
    0.5,
    0.01,
    0.5,
    2.5e-4,
)


def network(out_size: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, out_size))


def limit(env_steps: int = 51_200) -> dict:
    """A loop written by hand, with nothing of a framework."""
    env, actor, critic = cartpoles(ENV_NUM), network(2), network(1)
    parameters = [*actor.parameters(), *critic.parameters()]
    adam = torch.optim.Adam(parameters, LEARNING_RATE, eps=1e-5)
    obs, _ = env.reset(seed=0)
    updates, start = 0, perf_counter()
    for _ in range(env_steps // (ENV_NUM * STEPS)):
        obs, columns = rollout(env, obs, actor, critic)
        for _ in range(EPOCHS):
            for index in torch.randperm(ENV_NUM * STEPS).split(MINIBATCH):
                loss = ppo_loss(actor, critic, *(column[index] for column in columns))
                adam.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(parameters, GRAD_NORM)
                adam.step()
                updates += 1
    return {'seconds': perf_counter() - start, 'env_steps': env_steps, 'updates': updates}


@torch.no_grad()
def rollout(env, obs, actor, critic):
    """Collects one round; returns the next observation and obs, action, log_prob, advantage, return as flat columns."""
    seen = torch.zeros(STEPS, ENV_NUM, 4)
    action = torch.zeros(STEPS, ENV_NUM, dtype=torch.long)
    log_prob, reward, done, advantage = (torch.zeros(STEPS, ENV_NUM) for _ in range(4))
    value = torch.zeros(STEPS + 1, ENV_NUM)
    for t in range(STEPS):
        seen[t] = torch.from_numpy(obs)
        distribution = Categorical(logits=actor(seen[t]))
        action[t] = distribution.sample()
        log_prob[t] = distribution.log_prob(action[t])
        value[t] = critic(seen[t])[:, 0]
        obs, gained, terminated, truncated, _ = env.step(action[t].numpy())
        reward[t] = torch.from_numpy(gained)
        done[t] = torch.from_numpy(terminated | truncated).float()
    value[STEPS] = critic(torch.from_numpy(obs))[:, 0]
    following = torch.zeros(ENV_NUM)
    for t in reversed(range(STEPS)):
        delta = reward[t] + GAMMA * value[t + 1] * (1 - done[t]) - value[t]
        following = delta + GAMMA * LAMBDA * (1 - done[t]) * following
        advantage[t] = following
    columns = (seen.view(-1, 4), action, log_prob, advantage, advantage + value[:-1])
    return obs, [columns[0], *(column.view(-1) for column in columns[1:])]


def ppo_loss(actor, critic, obs, action, old_log_prob, advantage, return_) -> torch.Tensor:
    distribution = Categorical(logits=actor(obs))
    ratio = (distribution.log_prob(action) - old_log_prob).exp()
    advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
    gain = torch.min(ratio * advantage, ratio.clamp(1 - CLIP, 1 + CLIP) * advantage).mean()
    value_loss = (critic(obs)[:, 0] - return_).pow(2).mean()
    return VALUE_WEIGHT * value_loss - gain - ENTROPY_WEIGHT * distribution.entropy().mean()


def sb3(env_steps: int = 51_200) -> dict:
    from stable_baselines3 import PPO
    from stable_baselines3.common.env_util import make_vec_env

    model = PPO(
        'MlpPolicy',
        make_vec_env('CartPole-v1', ENV_NUM),
        n_steps=STEPS,
        batch_size=MINIBATCH,
        n_epochs=EPOCHS,
        learning_rate=LEARNING_RATE,
        gamma=GAMMA,
        gae_lambda=LAMBDA,
        clip_range=CLIP,
        vf_coef=VALUE_WEIGHT,
        ent_coef=ENTROPY_WEIGHT,
        max_grad_norm=GRAD_NORM,
        policy_kwargs={'net_arch': [64, 64]},
        device='cpu',
    )
    start = perf_counter()
    model.learn(env_steps)
    seconds = perf_counter() - start
    rounds = model._n_updates // EPOCHS
    updates = rounds * EPOCHS * ENV_NUM * STEPS // MINIBATCH
    return {'seconds': seconds, 'env_steps': env_steps, 'updates': updates}


def tianshou(env_steps: int = 51_200) -> dict:
    import gymnasium as gym
    import tianshou as ts
    from tianshou.algorithm.modelfree.reinforce import ProbabilisticActorPolicy
    from tianshou.algorithm.optim import AdamOptimizerFactory
    from tianshou.trainer import OnPolicyTrainerParams
    from tianshou.utils.net.common import Net
    from tianshou.utils.net.discrete import DiscreteActor, DiscreteCritic

    quiet()
    encoders = [Net(state_shape=(4,), hidden_sizes=[64, 64], activation=nn.Tanh) for _ in ('actor', 'critic')]
    policy = ProbabilisticActorPolicy(
        actor=DiscreteActor(preprocess_net=encoders[0], action_shape=2),
        dist_fn=Categorical,
        action_space=gym.make('CartPole-v1').action_space,
        action_scaling=False,
    )
    algorithm = ts.algorithm.PPO(
        policy=policy,
        critic=DiscreteCritic(preprocess_net=encoders[1]),
        optim=AdamOptimizerFactory(lr=LEARNING_RATE),
        gae_lambda=LAMBDA,
        gamma=GAMMA,
        eps_clip=CLIP,
        vf_coef=VALUE_WEIGHT,
        ent_coef=ENTROPY_WEIGHT,
        max_grad_norm=GRAD_NORM,
    )
    envs = ts.env.DummyVectorEnv([lambda: gym.make('CartPole-v1')] * ENV_NUM)
    collector = ts.data.Collector(algorithm, envs, ts.data.VectorReplayBuffer(20_000, ENV_NUM))
    collector.reset()
    params = OnPolicyTrainerParams(
        training_collector=collector,
        test_collector=None,
        max_epochs=1,
        epoch_num_steps=env_steps,
        collection_step_num_env_steps=ENV_NUM * STEPS,
        batch_size=MINIBATCH,
        update_step_num_repetitions=EPOCHS,
        test_in_training=False,
        show_progress=False,
        verbose=False,
    )
    start = perf_counter()
    algorithm.run_training(params)
    return {'seconds': perf_counter() - start, 'env_steps': env_steps}


def ding(env_steps: int = 51_200) -> dict:
    import ding.entry.serial_entry_onpolicy as entry
    from ding_clock import cartpole_config, clock_of_training

    model = {
        'obs_shape': 4,
        'action_shape': 2,
        'action_space': 'discrete',
        'encoder_hidden_size_list': [64, 64],
        'critic_head_hidden_size': 64,
        'actor_head_hidden_size': 64,
    }
    collect = {'n_sample': ENV_NUM * STEPS, 'unroll_len': 1, 'discount_factor': GAMMA, 'gae_lambda': LAMBDA}
    policy = {
        'cuda': False,
        'action_space': 'discrete',
        'model': model,
        'learn': {
            'epoch_per_collect': EPOCHS,
            'batch_size': MINIBATCH,
            'learning_rate': LEARNING_RATE,
            'clip_ratio': CLIP,
            'value_weight': VALUE_WEIGHT,
            'entropy_weight': ENTROPY_WEIGHT,
            'grad_clip_value': GRAD_NORM,
        },
        'collect': collect,
        'eval': {'evaluator': {'eval_freq': 10**9}},
    }
    configs = cartpole_config('ppo', policy, ENV_NUM)
    seconds = clock_of_training(
        lambda: entry.serial_pipeline_onpolicy(configs, seed=0, max_env_step=env_steps)
    )
    return {'seconds': seconds, 'env_steps': env_steps}


if __name__ == '__main__':
    run({'limit': limit, 'sb3': sb3, 'tianshou': tianshou, 'ding': ding})
