"""Fairness-Constrained Policy Optimization in one file, from top to bottom.

Ge et al., "Towards Long-term Fairness in Recommendation" (WSDM 2021). Numbers in brackets are the
equations of the paper, "line" is a line of its Algorithm 1. Needs torch and numpy only:

    python examples/fcpo_in_one_file.py

It trains two policies on a toy market with 20 items. Everybody likes the 4 popular ones best, so a
policy without a limit shows nothing else. With a limit, at most 30 % of what is shown may be
popular, and the policy has to learn what each user likes besides. The best reward of both is known
by hand (`best_reward`).

Then the groups move: after every trajectory G0 is made anew, of the items shown most so far. Half
of the users share one taste, and its items become popular by being shown. A policy that serves as
it was trained is far over the limit from then on; one that goes on learning is nearly back at it.
"""

import argparse
import copy
import math
from collections.abc import Callable
from dataclasses import dataclass, fields, replace

import numpy as np
import torch
from torch import Tensor, nn
from torch.distributions import Normal, kl_divergence
from torch.nn.utils import parameters_to_vector, vector_to_parameters


@dataclass(frozen=True)
class Args:
    alpha_prime: float = 0.3  # largest share of showings from the sensitive group G0; 1: no limit
    seed: int = 0
    rounds: int = 50  # M
    serving: int = 40  # trajectories under moving groups, after the training
    users: int = 300
    horizon: int = 10  # T, lists per trajectory
    list_length: int = 2  # K
    history: int = 5  # N, liked items in the state
    dim: int = 6  # d, of the embeddings
    hidden: int = 32
    gamma_r: float = 0.9
    gamma_c: float = 1.0
    gae_lambda: float = 0.0
    safety: float = 1.5  # standard errors between cost and limit: the cost is that of a sample
    delta: float = 0.08  # largest KL divergence of the first update; falls to a tenth
    fisher_every: int = 5  # H is that of every fifth state
    damping: float = 1e-3  # added to the diagonal of H
    cg_iterations: int = 10
    beta: float = 0.7  # line search ratio
    attempts: int = 12


# ---- The market: who likes what ------------------------------------------------------------------
POPULAR, TASTES, PER_TASTE = 4, 4, 4  # items 0-3 are G0, then 4 items for each of 4 tastes
LIKES_POPULAR, LIKES_TASTE, LIKES_OTHER = 0.8, 0.5, 0.05
SHARES = (0.5, 0.2, 0.2, 0.1)  # of the users who have each taste


class Market:
    """Users with one taste each. They answer every showing anew, so nothing is used up."""

    def __init__(self, args: Args) -> None:
        rng = np.random.default_rng(args.seed)
        items = np.arange(POPULAR + TASTES * PER_TASTE)
        tastes = rng.choice(TASTES, size=args.users, p=SHARES)
        own = tastes[:, None] == (items - POPULAR) // PER_TASTE
        chances = np.where(items < POPULAR, LIKES_POPULAR, np.where(own, LIKES_TASTE, LIKES_OTHER))
        # A log in which each user was shown each item once gives embeddings and histories.
        liked = rng.random(chances.shape) < chances
        U, S, V = np.linalg.svd(liked.astype(float), full_matrices=False)  # paper: PMF
        scale = np.sqrt(S[: args.dim])
        first = np.argsort(rng.random(chances.shape) - liked, axis=1)[:, : args.history]
        self.chances = torch.tensor(chances).float()  # (users, items)
        self.sensitive = torch.tensor(items < POPULAR)  # G0
        self.user_embeddings = torch.tensor(U[:, : args.dim] * scale).float()
        self.item_embeddings = torch.tensor(V.T[:, : args.dim] * scale).float()
        self.first_histories = torch.tensor(first)
        self.exposure = torch.tensor(liked.sum(0))  # of every item so far: its likes in the log

    def relabel(self, lists: Tensor) -> None:
        """Moving groups: G0 is the items that were shown most so far, these lists included."""
        self.exposure += torch.bincount(lists.flatten(), minlength=len(self.exposure))
        self.sensitive = torch.zeros_like(self.sensitive)
        self.sensitive[self.exposure.topk(POPULAR).indices] = True


def best_reward(args: Args) -> float:
    """Of a trajectory: a share alpha' of popular items, the rest of the user's own taste."""
    liked = args.alpha_prime * LIKES_POPULAR + (1 - args.alpha_prime) * LIKES_TASTE
    return args.horizon * args.list_length * liked


def cost_limit(args: Args) -> float:
    """(11)  d = sum_t gamma_c^t alpha' K"""
    return sum(args.gamma_c**t for t in range(args.horizon)) * args.alpha_prime * args.list_length


# ---- Actor and critics ---------------------------------------------------------------------------
class Actor(nn.Module):
    """(12)  s = [e_u; GRU(H)], then a Gaussian over W, the embeddings of K "ideal items"."""

    def __init__(self, args: Args, item_embeddings: Tensor) -> None:
        super().__init__()
        self.V, self.K = item_embeddings, args.list_length
        self.gru = nn.GRU(args.dim, args.hidden, batch_first=True)
        self.body = nn.Sequential(nn.Linear(args.dim + args.hidden, args.hidden), nn.Tanh())
        self.head = nn.Linear(args.hidden, 2 * args.list_length * args.dim)
        nn.init.normal_(self.head.weight, std=0.01)  # begins with nearly the same W everywhere
        nn.init.zeros_(self.head.bias)

    def encode(self, users: Tensor, histories: Tensor) -> Tensor:
        _, last = self.gru(self.V[histories])
        return torch.cat([users, last[0]], dim=1)  # (states, d + hidden)

    def forward(self, users: Tensor, histories: Tensor) -> Normal:
        mean, log_sigma = self.head(self.body(self.encode(users, histories))).chunk(2, dim=1)
        return Normal(mean, log_sigma.exp())  # W as a row of K d numbers

    def choose(self, W: Tensor) -> Tensor:
        """(14), (15): item k has the highest P_k = softmax(W_k V'), but none twice in a list."""
        scores = W.view(len(W), self.K, -1) @ self.V.T  # (users, K, items)
        chosen: list[Tensor] = []
        for row in scores.unbind(1):  # the softmax does not change which is the highest
            for earlier in chosen:
                row = row.scatter(1, earlier[:, None], -torch.inf)
            chosen.append(row.argmax(1))
        return torch.stack(chosen, dim=1)


class Critic(nn.Module):
    """(16), (17): the expected discounted sum of rewards or costs from a state on."""

    def __init__(self, args: Args) -> None:
        super().__init__()
        first, last = nn.Linear(args.dim + args.hidden + 1, args.hidden), nn.Linear(args.hidden, 1)
        self.net = nn.Sequential(first, nn.Tanh(), last)

    def forward(self, states: Tensor, left: Tensor) -> Tensor:
        """A mean per step times the steps that are left: a trajectory ends after T steps."""
        return left * self.net(torch.cat([states, left[:, None]], dim=1))[:, 0]

    def fit(self, states: Tensor, left: Tensor, targets: Tensor) -> None:
        """Minimise  sum_t (y_t - V(s_t))²  by L-BFGS."""
        optimiser = torch.optim.LBFGS(self.parameters(), max_iter=15, line_search_fn="strong_wolfe")

        def closure() -> float:
            optimiser.zero_grad()
            loss = nn.functional.mse_loss(self(states, left), targets.flatten())
            loss.backward()
            return loss.item()

        optimiser.step(closure)


# ---- Trajectories (lines 4-13) -------------------------------------------------------------------
@dataclass(frozen=True)
class Trajectories:
    users: Tensor  # (T, users, d)
    histories: Tensor  # (T, users, N)
    W: Tensor  # (T, users, K d)
    lists: Tensor  # (T, users, K)
    rewards: Tensor  # (T, users)
    costs: Tensor  # (T, users)


@torch.no_grad()
def rollout(args: Args, market: Market, actor: Actor, rng: torch.Generator) -> Trajectories:
    histories, rows = market.first_histories, []  # line 6
    for _ in range(args.horizon):
        policy = actor(market.user_embeddings, histories)  # line 8
        W = policy.mean + policy.stddev * torch.randn(policy.mean.shape, generator=rng)
        lists = actor.choose(W)  # line 9
        likes = torch.bernoulli(market.chances.gather(1, lists), generator=rng)  # (users, K)
        cost = market.sensitive[lists].float().sum(1)  # (9), the exposure of G0 (5)
        rows.append(
            (market.user_embeddings, histories, W, lists, likes.sum(1), cost)
        )  # (8), line 12
        for k in range(args.list_length):  # (13): a liked item enters the queue
            pushed = torch.cat([histories[:, 1:], lists[:, [k]]], dim=1)
            histories = torch.where(likes[:, [k]] > 0, pushed, histories)
    return Trajectories(*map(torch.stack, zip(*rows, strict=True)))


def advantages(x: Tensor, values: Tensor, gamma: float, lam: float) -> Tensor:
    """GAE of rewards or costs x (T, users), values (T + 1, users); discounted, centred by step."""
    found, running = torch.zeros_like(x), torch.zeros_like(x[0])
    for t in reversed(range(len(x))):
        running = x[t] + gamma * values[t + 1] - values[t] + gamma * lam * running
        found[t] = gamma**t * (running - running.mean())
    return found


# ---- Constrained policy optimization (lines 16-21) -----------------------------------------------
def conjugate_gradient(product: Callable[[Tensor], Tensor], b: Tensor, iterations: int) -> Tensor:
    """H⁻¹b, from products with H alone."""
    x, residual, direction, squared = torch.zeros_like(b), b, b, b @ b
    for _ in range(iterations):
        if squared < 1e-12:
            break
        image = product(direction)
        length = squared / (direction @ image)
        x, residual = x + length * direction, residual - length * image
        previous, squared = squared, residual @ residual
        direction = residual + squared / previous * direction
    return x


def dual(q: float, r: float, s: float, c: float, delta: float) -> tuple[str, float, float]:
    """(4) in closed form: the step is  x = w_g H⁻¹g + w_b H⁻¹b;  its case, w_g and w_b.

    q = g.H⁻¹g, r = g.H⁻¹b, s = b.H⁻¹b, c = J_C - d  (CPO, theorem 2). With the multipliers lambda
    of the trust region and nu of the limit, w_g = 1 / lambda and w_b = -nu / lambda.
    """
    longest = math.sqrt(2 * delta / q) if q > 0 else 0.0  # to the edge of the trust region
    if s <= 1e-12:  # no step changes the cost
        return ("recover", 0.0, 0.0) if c > 0 else ("inactive", longest, 0.0)
    slack = 2 * delta - c * c / s  # below 0: every step keeps the limit, or every step breaks it
    if slack < 0 and c > 0:  # no step reaches the limit: lower the cost, nothing else
        return "recover", 0.0, -math.sqrt(2 * delta / s)
    if slack < 0 or c + longest * r <= 0:  # the best step keeps the limit anyway
        return "inactive", longest, 0.0
    across = q - r * r / s  # the part of g along the limit
    w_g = math.sqrt(slack / across) if across > 1e-9 * q else 0.0
    return "active", w_g, -(c + w_g * r) / s


def update(
    args: Args, actor: Actor, t: Trajectories, A: Tensor, A_c: Tensor, c: float, delta: float
) -> str:
    """A step of (3). A_c and c are discounted and per trajectory, so b and c have one unit."""
    users, histories, W = (x.flatten(0, 1) for x in (t.users, t.histories, t.W))
    few = slice(None, None, args.fisher_every)
    parameters = list(actor.parameters())
    theta = parameters_to_vector(parameters).detach()
    with torch.no_grad():
        old, old_few = actor(users, histories), actor(users[few], histories[few])
        old_log = old.log_prob(W).sum(1)

    def surrogates() -> tuple[Tensor, Tensor, Tensor]:
        """Predicted change of reward and of cost, and the mean KL divergence."""
        new = actor(users, histories)
        change = ((new.log_prob(W).sum(1) - old_log).exp() - 1).view_as(A)
        kl = kl_divergence(old, new).sum(1).mean()
        return (change * A).sum(0).mean(), (change * A_c).sum(0).mean(), kl

    def gradient(value: Tensor, create_graph: bool = False) -> Tensor:
        rows = torch.autograd.grad(value, parameters, retain_graph=True, create_graph=create_graph)
        return torch.cat([row.reshape(-1) for row in rows])

    g, b = map(gradient, surrogates()[:2])
    kl = kl_divergence(old_few, actor(users[few], histories[few])).sum(1).mean()
    slope = gradient(kl, create_graph=True)

    def fisher(v: Tensor) -> Tensor:  # H v: H is the Hessian of the KL divergence
        return gradient(slope @ v) + args.damping * v

    Hg, Hb = (conjugate_gradient(fisher, x, args.cg_iterations) for x in (g, b))  # H⁻¹g, H⁻¹b
    case, w_g, w_b = dual(float(g @ Hg), float(g @ Hb), float(b @ Hb), c, delta)
    step = w_g * Hg + w_b * Hb
    for _ in range(args.attempts):  # lines 17-20
        vector_to_parameters(theta + step, parameters)
        with torch.no_grad():
            gained, spent, kl = surrogates()
        if kl <= delta and (gained >= 0 or c > 0) and spent <= max(0.0, -c):
            return case
        step = args.beta * step
    vector_to_parameters(theta, parameters)  # nothing was acceptable: the policy stays as it was
    return "none"


class Learner:
    """The actor, its critics, and a round of Algorithm 1."""

    def __init__(self, args: Args, market: Market) -> None:
        torch.manual_seed(args.seed)
        self.args, self.market = args, market
        self.rng = torch.Generator().manual_seed(args.seed)
        self.actor = Actor(args, market.item_embeddings)
        self.critic, self.cost_critic = Critic(args), Critic(args)

    def round(self, delta: float) -> tuple[Trajectories, float, str]:
        """Lines 6-23: trajectories, by how much the policy before the update was over, the case."""
        args, T, n = self.args, self.args.horizon, self.args.users
        left = (torch.arange(T, -1, -1.0) / T).repeat_interleave(n)  # at t = 0 ... T
        t = rollout(args, self.market, self.actor, self.rng)
        with torch.no_grad():  # after T steps no step is left: the value is 0 whatever the state
            states = [self.actor.encode(*some) for some in zip(t.users, t.histories, strict=True)]
            s = torch.cat([*states, states[-1]])
            V, V_c = (net(s, left).view(T + 1, n) for net in (self.critic, self.cost_critic))
        A = advantages(t.rewards, V, args.gamma_r, args.gae_lambda)  # line 15
        A_c = advantages(t.costs, V_c, args.gamma_c, args.gae_lambda)
        spent = sum(args.gamma_c**k * cost for k, cost in enumerate(t.costs))  # (users,)
        margin = args.safety * float(spent.std()) / math.sqrt(n)
        c = float(spent.mean()) + margin - cost_limit(args)  # (10)
        case = update(args, self.actor, t, A, A_c, c, delta)
        self.critic.fit(s[:-n], left[:-n], t.rewards + args.gamma_r * V[1:])  # line 22
        self.cost_critic.fit(s[:-n], left[:-n], t.costs + args.gamma_c * V_c[1:])  # line 23
        return t, c, case


def train(args: Args, log: Callable[[str], None] = print) -> Learner:
    """Algorithm 1: a learner with, of all rounds that kept the limit, the best policy."""
    learner, d = Learner(args, Market(args)), cost_limit(args)
    parameters = list(learner.actor.parameters())
    best, served = -math.inf, parameters_to_vector(parameters).detach()
    for number in range(1, args.rounds + 1):  # line 5
        before = parameters_to_vector(parameters).detach()
        t, c, case = learner.round(args.delta * (1 - 0.9 * number / args.rounds))
        reward, cost = float(t.rewards.sum(0).mean()), float(t.costs.sum(0).mean())
        if c <= 0 and reward > best:  # both are of the policy before its update
            best, served = reward, before
        if number % 10 == 0 or number == 1:
            log(f"round {number:3}  reward {reward:5.2f}  cost {cost:5.2f} of {d:.2f}  {case}")
    vector_to_parameters(served, parameters)
    return learner


def serve(learner: Learner, learn: bool) -> tuple[Tensor, float]:
    """The long run: the share of G0 in every trajectory by its own labels, and the mean reward."""
    args, market, runs = learner.args, learner.market, []
    for _ in range(args.serving):
        if learn:
            t, _, _ = learner.round(args.delta)
        else:
            t = rollout(args, market, learner.actor, learner.rng)
        market.relabel(t.lists)
        runs.append((t.costs.mean() / args.list_length, t.rewards.sum(0).mean()))
    shares, rewards = torch.tensor(runs).T
    return shares, float(rewards.mean())


def main() -> None:
    parser = argparse.ArgumentParser(description="FCPO on a toy market, with a limit and without")
    for field in fields(Args):
        parser.add_argument(f"--{field.name}", type=type(field.default), default=field.default)
    args = Args(**vars(parser.parse_args()))
    unlimited, limited = train(replace(args, alpha_prime=1.0)), train(args)
    for learner in (unlimited, limited):
        t = rollout(learner.args, learner.market, learner.actor, learner.rng)
        share = float(t.costs.mean()) / args.list_length
        reward = f"reward {t.rewards.sum(0).mean():.2f}, at best {best_reward(learner.args):.2f}"
        print(f"limit {learner.args.alpha_prime:.0%}: {share:.1%} popular, {reward}")
    for name, learn in (("as trained", False), ("learning", True)):
        shares, mean_reward = serve(copy.deepcopy(limited), learn)
        late = float(shares[len(shares) // 2 :].mean())  # of the later half
        print(f"moving groups, {name}: {late:.1%} popular in the end, reward {mean_reward:.2f}")


if __name__ == "__main__":
    main()
