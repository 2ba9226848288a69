# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # From a log to fair lists
#
# A shop has a log of who bought what, and two rules: at most 40 % of what it shows is popular,
# and at least half is from small sellers. This notebook goes from the log to lists that keep
# both, shows what the rules cost, and what happens over 60 days, while exposure decides what is
# popular.
#
# Open it in Jupyter (with jupytext), or run it: the charts are written to `charts/`.

# %%
from pathlib import Path

import altair as alt
import numpy as np
import polars as pl

import fairhorizon as fh

OUT = Path("charts")
OUT.mkdir(exist_ok=True)


def show(chart: alt.Chart | alt.LayerChart | alt.HConcatChart, name: str) -> object:
    chart.save(OUT / f"{name}.png")
    return chart


# %% [markdown]
# ## The log
#
# Any frame, file or named set will do. Here it is a synthetic market, because its users have an
# answer for every item, also for those that the log does not have. Half of the items are of small
# sellers, who sell the less popular ones.

# %%
market = fh.synthetic_market("synthetic:users=200,items=150,interactions_per_user=30,seed=2")
truth = market.interactions
sales = pl.DataFrame(
    {
        "customer": [f"u{code}" for code in truth.users],
        "sku": [f"sku{code}" for code in truth.items],
        "ts": truth.timestamps,
    }
)
bought = sales["sku"].value_counts(sort=True)
sizes = ["big" if rank < 60 else "small" for rank in range(len(bought))]
items = bought.select("sku", seller_size=pl.Series(sizes))
popular = bought["sku"].head(round(0.2 * truth.n_items)).to_list()
small = items.filter(seller_size="small")["sku"].to_list()
sales.head(3)

# %%
log = fh.load(sales, user="customer", item="sku", time="ts")
print(f"{log.n_users} users, {log.n_items} items")

# %% [markdown]
# ## Lists without rules
#
# EASE is a good ranker. What does it show?

# %%
today = fh.fit(log, "ease").recommend(k=10)


def shares(lists: pl.DataFrame) -> dict[str, float]:
    return {
        "popular": float(lists["item"].is_in(popular).mean()),
        "small sellers": float(lists["item"].is_in(small).mean()),
    }


shares(today)

# %% [markdown]
# ## Lists with rules
#
# One model, two limits. All lists of a call keep both together.

# %%
model = fh.fit(log, limits=["popular<=0.4", "seller_size=small>=0.5"], items=items)
fair = model.recommend(k=10)
shares(fair)

# %%
print(model.explain("u17", k=5))

# %%
bars = pl.DataFrame(
    [
        {"lists": name, "group": group, "share": share}
        for name, lists in (("without rules", today), ("with rules", fair))
        for group, share in shares(lists).items()
    ]
)
show(
    alt.Chart(bars)
    .mark_bar()
    .encode(
        x=alt.X("share", axis=alt.Axis(format="%")),
        y=alt.Y("lists", sort=None, title=None),
        row=alt.Row("group", title=None),
        color=alt.Color("lists", legend=None),
    ),
    "shares",
)

# %% [markdown]
# ## Who gets the showings
#
# The Lorenz curve: the least shown items first, and the share of all showings that they have. On
# the diagonal all items are shown equally often.


# %%
def lorenz(name: str, lists: pl.DataFrame) -> pl.DataFrame:
    counts = np.zeros(log.n_items)
    shown = lists["item"].value_counts()["count"].to_numpy()
    counts[: len(shown)] = shown
    curve = np.append(0, np.sort(counts).cumsum()) / counts.sum()
    catalogue = np.linspace(0, 1, log.n_items + 1)
    return pl.DataFrame({"catalogue": catalogue, "exposure": curve}).with_columns(
        lists=pl.lit(name)
    )


curves = pl.concat([lorenz("without rules", today), lorenz("with rules", fair)])
axes = alt.Chart(curves).encode(x="catalogue", y=alt.Y("exposure", title="exposure"))
even = axes.mark_line(strokeDash=[4, 4], color="gray").encode(
    y=alt.Y("catalogue", title="exposure")
)
lines = axes.mark_line().encode(color="lists")
show(even + lines, "lorenz")

# %% [markdown]
# ## What a limit costs
#
# A study splits the log by time, so that lists can be compared with what users took next. One
# trained policy serves every level.

# %%
parts = fh.split(truth)
policy = fh.Fcpo(fh.FcpoConfig(rounds=4), seed=0).fit(parts)
levels = []
for limit in (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1.0):
    metrics = fh.evaluate(policy.with_level(limit), parts, ks=[10]).metrics
    levels.append(
        {"limit": limit, "share": metrics["popularity_rate@10"], "ndcg": metrics["ndcg@10"]}
    )
costs = pl.DataFrame(levels)
percent = alt.Axis(format="%")
base = alt.Chart(costs).mark_line(point=True).encode(x=alt.X("limit", axis=percent))
kept = base.encode(y=alt.Y("share", axis=percent, title="popular items shown"))
accuracy = base.encode(y=alt.Y("ndcg", scale=alt.Scale(zero=False), title="NDCG@10"))
show(kept | accuracy, "limits")

# %% [markdown]
# ## The long run
#
# Every day each user is shown one item, and may be shown it again twenty days later. Showings
# count as exposure, exposure decides what is popular, and the limit is on all showings so far of
# the items that are popular now.

# %%
STEPS, WARM_UP = 60, 10
settings = fh.LongRunSettings(steps=STEPS, warm_up=WARM_UP, repeat_after=20)
limit = fh.PopularityLimit(0.4, warm_up=WARM_UP, labels="retrospective")
servers = {
    "no limit": fh.Ranked(fh.Ease()).fit(parts).online(),
    "limit of 40 %": policy.online([limit]),
}
rows = []
for name, server in servers.items():
    users = fh.SimulatedUsers.from_split(market, parts, server.queue_length, fh.Protocol.STANDARD)
    run = fh.LongRun(server, users, fh.Exposure(parts.train.item_counts()), settings)
    while not run.finished:
        row = run.step()
        share = row["popularity_rate_retrospective"]
        rows.append({"lists": name, "step": row["step"], "share": share, "gini": row["gini"]})
steps = pl.DataFrame(rows)
rule = alt.Chart(pl.DataFrame({"share": [0.4]})).mark_rule(strokeDash=[4, 4]).encode(y="share")
over_time = (
    alt.Chart(steps).mark_line().encode(x="step", y=alt.Y("share", axis=percent), color="lists")
)
show(over_time + rule, "long-run")

# %% [markdown]
# Without a limit the popular items keep their lead. With one the share falls to the limit during
# the warm-up and stays near it: under the labels of now a limit is steered, not promised.

# %%
last = steps.filter(step=STEPS)
print(last)
