"""The tables. Times are seconds since 1970 by the database's clock, exposure is in millionths.

A migration in `migrations/versions` stands behind every change here.
"""

import sqlalchemy as sa

from fairhorizon.service.settings import ID_LENGTH

metadata = sa.MetaData()

# SQLite numbers rows by itself in a column of this type only.
Number = sa.BigInteger().with_variant(sa.Integer, "sqlite")
Id = sa.String(ID_LENGTH)
Time = sa.Double
Units = sa.BigInteger  # millionths of a showing

# One row. Whoever records lists holds its lock, so that lists have an order, and whoever changes
# what lists are made of raises the generation.
state = sa.Table(
    "state",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("generation", Number, nullable=False),
    sa.Column("epoch", Number, nullable=False),  # of the labels by popularity
    sa.Column("lists", Number, nullable=False),  # recorded so far
    sa.Column("showings", Number, nullable=False),
    sa.Column("rolled_up", Number, nullable=False),  # the last list that is in counts by time
    sa.Column("model_id", Number),
    sa.Column("clock", Time, nullable=False),  # never goes back
    sa.Column("secret", sa.String(64), nullable=False),  # signs sessions of the dashboard
)

models = sa.Table(
    "models",
    metadata,
    sa.Column("id", Number, primary_key=True),
    sa.Column("folder", sa.Text, nullable=False),
    sa.Column("method", sa.String(64), nullable=False),
    sa.Column("registered_at", Time, nullable=False),
    sa.Column("promoted_at", Time),
    sa.Column("retired_at", Time),
)

items = sa.Table(
    "items",
    metadata,
    sa.Column("id", Id, primary_key=True),
    sa.Column("hidden", sa.Boolean, nullable=False),
    sa.Column("categories", sa.JSON, nullable=False),
    sa.Column("labels", sa.JSON, nullable=False),  # columns that limits may be about
    sa.Column("time", Time, nullable=False),
    sa.Column("comment", sa.Text, nullable=False),
    sa.Column("deleted", sa.Boolean, nullable=False),  # a showing of it may have been recorded
    sa.Column("generation", Number, nullable=False, index=True),  # of its last change
)

users = sa.Table(
    "users",
    metadata,
    sa.Column("id", Id, primary_key=True),
    sa.Column("labels", sa.JSON, nullable=False),
    sa.Column("comment", sa.Text, nullable=False),
)

# Who asked to be forgotten, by a hash of the id: the log of a model may still have them.
forgotten = sa.Table("forgotten", metadata, sa.Column("user_hash", sa.String(64), primary_key=True))

feedback = sa.Table(
    "feedback",
    metadata,
    sa.Column("id", Number, primary_key=True),
    sa.Column("event_id", sa.String(ID_LENGTH), nullable=False, unique=True),
    sa.Column("type", sa.String(64), nullable=False),
    sa.Column("user_id", Id, nullable=False),
    sa.Column("item_id", Id, nullable=False),
    sa.Column("value", sa.Double, nullable=False),
    sa.Column("time", Time, nullable=False),  # as it was said, but never in the future
    sa.Column("received_at", Time, nullable=False, index=True),
    sa.Column("list_id", sa.String(32)),
    sa.Index("feedback_of_user", "user_id", "time"),
    sa.Index("feedback_of_item", "item_id", "time"),
    sqlite_autoincrement=True,  # whoever pages by it must not meet a number twice
)

lists = sa.Table(
    "lists",
    metadata,
    sa.Column("number", Number, primary_key=True, autoincrement=False),  # in order of commits
    sa.Column("id", sa.String(32), nullable=False, unique=True),
    sa.Column("user_id", Id),  # null: the user was forgotten
    sa.Column("served_at", Time, nullable=False, index=True),
    sa.Column("source", sa.String(16), nullable=False),  # recommend, rank
    sa.Column("items", sa.JSON, nullable=False),  # by place
    sa.Column("labels", sa.JSON, nullable=False),  # by place, the accounts that it counts in
    sa.Column("windows", sa.JSON, nullable=False),  # that its showings count in
    sa.Column("scores", sa.JSON, nullable=False),
    sa.Column("values", sa.JSON, nullable=False),
    sa.Column("propensities", sa.JSON),  # by place, where lists are explored
    sa.Column("prices", sa.JSON, nullable=False),  # of each account that took something off
    sa.Column("model_id", Number),
    sa.Column("epoch", Number, nullable=False),
    sa.Column("replica_id", sa.String(32), nullable=False),
    sa.Column("milliseconds", sa.Double, nullable=False),  # from the request to its record
    sa.Column("missing", sa.Integer),  # places that no item was found for; null: not known
    sa.Index("lists_of_user", "user_id", "number"),
)

# Which showings of lists were confirmed by `read` feedback.
confirmations = sa.Table(
    "confirmations",
    metadata,
    sa.Column("list_id", sa.String(32), primary_key=True),
    sa.Column("place", sa.Integer, primary_key=True),  # from 0
)

# Lists whose showings await confirmation, where some limit counts confirmed ones only.
unconfirmed = sa.Table(
    "unconfirmed",
    metadata,
    sa.Column("list_id", sa.String(32), primary_key=True),
    sa.Column("until", Time, nullable=False, index=True),
)

limits = sa.Table(
    "limits",
    metadata,
    sa.Column("id", Number, primary_key=True),
    sa.Column("text", sa.Text, nullable=False),
    sa.Column("window", sa.String(32), nullable=False),
    sa.Column("counts", sa.String(16), nullable=False),  # served, confirmed
    sa.Column("slack", Units, nullable=False),  # C
    sa.Column("created_at", Time, nullable=False),
    sa.Column("ended_at", Time),
)

# What was shown while a limit counted, from one end of its window to the next.
windows = sa.Table(
    "windows",
    metadata,
    sa.Column("id", Number, primary_key=True),
    sa.Column("limit_id", Number, nullable=False, index=True),
    sa.Column("name", sa.String(64), nullable=False),  # 2026-11-17, or its number
    sa.Column("opened_at", Time, nullable=False),
    sa.Column("closed_at", Time),
    sa.Column("shown", Units, nullable=False),
    sa.UniqueConstraint("limit_id", "name"),
)

# The budget of one group in one window.
accounts = sa.Table(
    "accounts",
    metadata,
    sa.Column("id", Number, primary_key=True),
    sa.Column("window_id", Number, nullable=False, index=True),
    sa.Column("group", sa.Text, nullable=False),  # as the limit calls it
    sa.Column("used", Units, nullable=False),  # showings of the group
    sa.Column("pending", Units, nullable=False),  # served, neither confirmed nor given up
    sa.Column("charged", Units, nullable=False),  # used + pending + what is left of all leases
    sa.Column("price", sa.Double, nullable=False),
)

replicas = sa.Table(
    "replicas",
    metadata,
    sa.Column("id", sa.String(32), primary_key=True),
    sa.Column("host", sa.String(255), nullable=False),
    sa.Column("pid", sa.Integer, nullable=False),
    sa.Column("started_at", Time, nullable=False),
    sa.Column("seen_at", Time, nullable=False),
    sa.Column("model_ready", Number),  # the model that it has loaded to be promoted
)

leases = sa.Table(
    "leases",
    metadata,
    sa.Column("replica_id", sa.String(32), primary_key=True),
    sa.Column("account_id", Number, primary_key=True),
    sa.Column("left", Units, nullable=False),
)

# The items that are popular in an epoch.
labels = sa.Table(
    "labels",
    metadata,
    sa.Column("epoch", Number, primary_key=True),
    sa.Column("begun_at", Time, nullable=False),
    sa.Column("popular", sa.JSON, nullable=False),  # ids
)

item_hours = sa.Table(
    "item_hours",
    metadata,
    sa.Column("hour", Number, primary_key=True),  # since 1970
    sa.Column("item_id", Id, primary_key=True),
    sa.Column("shown", Number, nullable=False),
    sa.Index("hours_of_item", "item_id", "hour"),
)

account_minutes = sa.Table(
    "account_minutes",
    metadata,
    sa.Column("minute", Number, primary_key=True),
    sa.Column("account_id", Number, primary_key=True),
    sa.Column("used", Units, nullable=False),
    sa.Column("price", sa.Double, nullable=False),  # the last of the minute
)

window_minutes = sa.Table(
    "window_minutes",
    metadata,
    sa.Column("minute", Number, primary_key=True),
    sa.Column("window_id", Number, primary_key=True),
    sa.Column("shown", Units, nullable=False),
)

minutes = sa.Table(
    "minutes",
    metadata,
    sa.Column("minute", Number, primary_key=True),
    sa.Column("lists", Number, nullable=False),
    sa.Column("showings", Number, nullable=False),
    sa.Column("milliseconds", sa.Double, nullable=False),  # of all lists together
    sa.Column("slowest", sa.Double, nullable=False),
)

keys = sa.Table(
    "keys",
    metadata,
    sa.Column("id", sa.String(16), primary_key=True),
    sa.Column("name", sa.String(ID_LENGTH), nullable=False),
    sa.Column("role", sa.String(16), nullable=False),
    sa.Column("secret_hash", sa.String(64), nullable=False),
    sa.Column("created_at", Time, nullable=False),
    sa.Column("ended_at", Time),
)

jobs = sa.Table(
    "jobs",
    metadata,
    sa.Column("id", Number, primary_key=True),
    sa.Column("kind", sa.String(32), nullable=False),
    sa.Column("once", sa.String(128), nullable=False, unique=True),  # the same job is made once
    sa.Column("arguments", sa.JSON, nullable=False),
    sa.Column("state", sa.String(16), nullable=False, index=True),
    sa.Column("progress", sa.Double, nullable=False),
    sa.Column("message", sa.Text, nullable=False),
    sa.Column("owner", sa.String(32)),  # the replica that works on it
    sa.Column("created_at", Time, nullable=False),
    sa.Column("ended_at", Time),
)

alerts = sa.Table(
    "alerts",
    metadata,
    sa.Column("id", Number, primary_key=True),
    sa.Column("kind", sa.String(32), nullable=False),
    sa.Column("subject", sa.Text, nullable=False),
    sa.Column("message", sa.Text, nullable=False),
    sa.Column("begun_at", Time, nullable=False),
    sa.Column("ended_at", Time),
)
