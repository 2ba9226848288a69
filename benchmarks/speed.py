"""Speed of FCPO's parts, as ratios measured in one run on one thread.

    python benchmarks/speed.py [--data ml-100k] [--rounds 10] [--small]

The reference of 38 s of CPU for one round (943 users x 10 steps) is the paper's public code, made
to run on a CPU and measured on one quiet core; everything else is compared within this run.
"""

import argparse
import resource
import time
from collections.abc import Callable
from statistics import median

import torch

from fairhorizon.data.loading import load
from fairhorizon.data.splits import split
from fairhorizon.fcpo.config import FcpoConfig
from fairhorizon.fcpo.learner import generalized_advantages, update_actor
from fairhorizon.fcpo.model import Fcpo
from fairhorizon.fcpo.policies import Proposal
from fairhorizon.fcpo.rollouts import rollout
from fairhorizon.fcpo.training import GaussianEpisodes, Training, where_episodes_begin
from fairhorizon.recommenders.base import FitTask
from fairhorizon.simulation.feedback import training_scenario
from shared import parse

PUBLIC_CODE_SECONDS = 38.0


def cpu_seconds(work: Callable[[], object]) -> float:
    started = time.process_time()
    work()
    return time.process_time() - started


def ratio(work: Callable[[], object], base: Callable[[], object], repeats: int) -> float:
    """Median of CPU times measured in turns, so that a noisy machine slows both alike."""
    work(), base()
    return median(cpu_seconds(work) / cpu_seconds(base) for _ in range(repeats))


def step_ratio(training: Training, repeats: int) -> float:
    """A step of a rollout over the bare product and argmax on the same shapes."""
    config, actor = training.config, training.actor
    episodes = training.episodes
    assert isinstance(episodes, GaussianEpisodes)
    users = torch.arange(training.split.train.n_users)
    cuts = where_episodes_begin(episodes.items, config, training.generator)
    length = episodes.validation.queue.shape[1]
    scenario = training_scenario(episodes.items, length, config.protocol, cuts)
    proposals = torch.randn(len(users), actor.encoder.item_vectors.shape[1])
    items = actor.encoder.item_vectors[:-1]

    def rolled() -> None:
        rollout(
            actor,
            scenario,
            users,
            training.sensitive,
            steps=config.horizon,
            generator=training.generator,
        )

    def bare() -> None:
        for _ in range(config.horizon):
            (proposals @ items.T).argmax(1)

    return ratio(rolled, bare, repeats)


def update_ratio(training: Training, repeats: int) -> float:
    """The whole policy update over one forward and backward pass on the same batch."""
    config, actor = training.config, training.actor
    batch = training.episodes.generate(training.generator)
    index = batch.state_index
    # the critics are not part of an update: their values are 0 here, which costs it the same
    values = batch.rewards.new_zeros(len(batch), batch.rewards.shape[1] + 1)
    reward, cost = (
        generalized_advantages(signal, values, gamma, config.gae_lambda)
        for signal, gamma in (
            (batch.rewards, config.gamma_r),
            (batch.costs[:, :, 0], config.gamma_c),
        )
    )
    gaps = batch.costs.sum(1).mean(0) - training.limit
    before = {name: value.clone() for name, value in actor.state_dict().items()}

    def update() -> None:
        advantages = torch.stack([reward, cost])
        update_actor(actor, batch, advantages, gaps, config, training.generator)
        actor.load_state_dict(before)

    def forward_and_backward() -> None:
        proposal = Proposal.from_outputs(actor(batch.state_users, batch.state_queues))
        log_probs = proposal.log_prob(batch.proposals.flatten(0, 1), index.flatten())
        (log_probs @ reward.flatten()).backward()
        actor.zero_grad()

    return ratio(update, forward_and_backward, repeats)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", default="ml-100k")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--repeats", type=int, default=25, help="of a step and of an update")
    options = parse(parser, rounds=1, repeats=2)
    torch.set_num_threads(1)
    training = Fcpo(FcpoConfig.preset("paper")).training(
        FitTask.from_split(split(load(options.data)))
    )

    training.round()
    seconds = median(cpu_seconds(training.round) for _ in range(options.rounds))
    print(f"{options.data}, {training.split.train.n_users} users x {training.config.horizon} steps")
    print(f"one round                                  {seconds:8.2f} s of CPU")
    if options.data == "ml-100k":
        print(f"  less than the public code's 38 s by      {PUBLIC_CODE_SECONDS / seconds:8.1f} x")
    print(
        f"rollout step / bare product and argmax     {step_ratio(training, options.repeats):8.2f}"
    )
    print(
        f"policy update / forward and backward pass  {update_ratio(training, options.repeats):8.2f}"
    )
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"peak memory                                {peak:8.2f} GiB")


if __name__ == "__main__":
    main()
