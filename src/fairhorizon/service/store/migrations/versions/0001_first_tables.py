"""The first tables."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

Number = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    _account_minutes()
    _accounts()
    _alerts()
    _confirmations()
    _feedback()
    _forgotten()
    _item_hours()
    _items()
    _jobs()
    _keys()
    _labels()
    _leases()
    _limits()
    _lists()
    _minutes()
    _models()
    _replicas()
    _state()
    _unconfirmed()
    _users()
    _window_minutes()
    _windows()


def _account_minutes() -> None:
    op.create_table(
        "account_minutes",
        sa.Column("minute", Number, nullable=False),
        sa.Column("account_id", Number, nullable=False),
        sa.Column("used", sa.BigInteger(), nullable=False),
        sa.Column("price", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("minute", "account_id"),
    )


def _accounts() -> None:
    op.create_table(
        "accounts",
        sa.Column("id", Number, nullable=False),
        sa.Column("window_id", Number, nullable=False),
        sa.Column("group", sa.Text(), nullable=False),
        sa.Column("used", sa.BigInteger(), nullable=False),
        sa.Column("pending", sa.BigInteger(), nullable=False),
        sa.Column("charged", sa.BigInteger(), nullable=False),
        sa.Column("price", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index(op.f("ix_accounts_window_id"), "accounts", ["window_id"], unique=False)


def _alerts() -> None:
    op.create_table(
        "alerts",
        sa.Column("id", Number, nullable=False),
        sa.Column("kind", sa.String(length=32), nullable=False),
        sa.Column("subject", sa.Text(), nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("begun_at", sa.Double(), nullable=False),
        sa.Column("ended_at", sa.Double(), nullable=True),
        sa.PrimaryKeyConstraint("id"),
    )


def _confirmations() -> None:
    op.create_table(
        "confirmations",
        sa.Column("list_id", sa.String(length=32), nullable=False),
        sa.Column("place", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("list_id", "place"),
    )


def _feedback() -> None:
    op.create_table(
        "feedback",
        sa.Column("id", Number, nullable=False),
        sa.Column("event_id", sa.String(length=256), nullable=False),
        sa.Column("type", sa.String(length=64), nullable=False),
        sa.Column("user_id", sa.String(length=256), nullable=False),
        sa.Column("item_id", sa.String(length=256), nullable=False),
        sa.Column("value", sa.Double(), nullable=False),
        sa.Column("time", sa.Double(), nullable=False),
        sa.Column("received_at", sa.Double(), nullable=False),
        sa.Column("list_id", sa.String(length=32), nullable=True),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("event_id"),
        sqlite_autoincrement=True,
    )
    op.create_index("feedback_of_item", "feedback", ["item_id", "time"], unique=False)
    op.create_index("feedback_of_user", "feedback", ["user_id", "time"], unique=False)
    op.create_index(op.f("ix_feedback_received_at"), "feedback", ["received_at"], unique=False)


def _forgotten() -> None:
    op.create_table(
        "forgotten",
        sa.Column("user_hash", sa.String(length=64), nullable=False),
        sa.PrimaryKeyConstraint("user_hash"),
    )


def _item_hours() -> None:
    op.create_table(
        "item_hours",
        sa.Column("hour", Number, nullable=False),
        sa.Column("item_id", sa.String(length=256), nullable=False),
        sa.Column("shown", Number, nullable=False),
        sa.PrimaryKeyConstraint("hour", "item_id"),
    )
    op.create_index("hours_of_item", "item_hours", ["item_id", "hour"], unique=False)


def _items() -> None:
    op.create_table(
        "items",
        sa.Column("id", sa.String(length=256), nullable=False),
        sa.Column("hidden", sa.Boolean(), nullable=False),
        sa.Column("categories", sa.JSON(), nullable=False),
        sa.Column("labels", sa.JSON(), nullable=False),
        sa.Column("time", sa.Double(), nullable=False),
        sa.Column("comment", sa.Text(), nullable=False),
        sa.Column("deleted", sa.Boolean(), nullable=False),
        sa.Column("generation", Number, nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index(op.f("ix_items_generation"), "items", ["generation"], unique=False)


def _jobs() -> None:
    op.create_table(
        "jobs",
        sa.Column("id", Number, nullable=False),
        sa.Column("kind", sa.String(length=32), nullable=False),
        sa.Column("once", sa.String(length=128), nullable=False),
        sa.Column("arguments", sa.JSON(), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("progress", sa.Double(), nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("owner", sa.String(length=32), nullable=True),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("ended_at", sa.Double(), nullable=True),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("once"),
    )
    op.create_index(op.f("ix_jobs_state"), "jobs", ["state"], unique=False)


def _keys() -> None:
    op.create_table(
        "keys",
        sa.Column("id", sa.String(length=16), nullable=False),
        sa.Column("name", sa.String(length=256), nullable=False),
        sa.Column("role", sa.String(length=16), nullable=False),
        sa.Column("secret_hash", sa.String(length=64), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("ended_at", sa.Double(), nullable=True),
        sa.PrimaryKeyConstraint("id"),
    )


def _labels() -> None:
    op.create_table(
        "labels",
        sa.Column("epoch", Number, nullable=False),
        sa.Column("begun_at", sa.Double(), nullable=False),
        sa.Column("popular", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("epoch"),
    )


def _leases() -> None:
    op.create_table(
        "leases",
        sa.Column("replica_id", sa.String(length=32), nullable=False),
        sa.Column("account_id", Number, nullable=False),
        sa.Column("left", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("replica_id", "account_id"),
    )


def _limits() -> None:
    op.create_table(
        "limits",
        sa.Column("id", Number, nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("window", sa.String(length=32), nullable=False),
        sa.Column("counts", sa.String(length=16), nullable=False),
        sa.Column("slack", sa.BigInteger(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("ended_at", sa.Double(), nullable=True),
        sa.PrimaryKeyConstraint("id"),
    )


def _lists() -> None:
    op.create_table(
        "lists",
        sa.Column("number", Number, autoincrement=False, nullable=False),
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("user_id", sa.String(length=256), nullable=True),
        sa.Column("served_at", sa.Double(), nullable=False),
        sa.Column("source", sa.String(length=16), nullable=False),
        sa.Column("items", sa.JSON(), nullable=False),
        sa.Column("labels", sa.JSON(), nullable=False),
        sa.Column("windows", sa.JSON(), nullable=False),
        sa.Column("scores", sa.JSON(), nullable=False),
        sa.Column("values", sa.JSON(), nullable=False),
        sa.Column("propensities", sa.JSON(), nullable=True),
        sa.Column("prices", sa.JSON(), nullable=False),
        sa.Column("model_id", Number, nullable=True),
        sa.Column("epoch", Number, nullable=False),
        sa.Column("replica_id", sa.String(length=32), nullable=False),
        sa.Column("milliseconds", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("number"),
        sa.UniqueConstraint("id"),
    )
    op.create_index(op.f("ix_lists_served_at"), "lists", ["served_at"], unique=False)
    op.create_index("lists_of_user", "lists", ["user_id", "number"], unique=False)


def _minutes() -> None:
    op.create_table(
        "minutes",
        sa.Column("minute", Number, nullable=False),
        sa.Column("lists", Number, nullable=False),
        sa.Column("showings", Number, nullable=False),
        sa.Column("milliseconds", sa.Double(), nullable=False),
        sa.Column("slowest", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("minute"),
    )


def _models() -> None:
    op.create_table(
        "models",
        sa.Column("id", Number, nullable=False),
        sa.Column("folder", sa.Text(), nullable=False),
        sa.Column("method", sa.String(length=64), nullable=False),
        sa.Column("registered_at", sa.Double(), nullable=False),
        sa.Column("promoted_at", sa.Double(), nullable=True),
        sa.Column("retired_at", sa.Double(), nullable=True),
        sa.PrimaryKeyConstraint("id"),
    )


def _replicas() -> None:
    op.create_table(
        "replicas",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("host", sa.String(length=255), nullable=False),
        sa.Column("pid", sa.Integer(), nullable=False),
        sa.Column("started_at", sa.Double(), nullable=False),
        sa.Column("seen_at", sa.Double(), nullable=False),
        sa.Column("model_ready", Number, nullable=True),
        sa.PrimaryKeyConstraint("id"),
    )


def _state() -> None:
    op.create_table(
        "state",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("generation", Number, nullable=False),
        sa.Column("epoch", Number, nullable=False),
        sa.Column("lists", Number, nullable=False),
        sa.Column("showings", Number, nullable=False),
        sa.Column("rolled_up", Number, nullable=False),
        sa.Column("model_id", Number, nullable=True),
        sa.Column("clock", sa.Double(), nullable=False),
        sa.Column("secret", sa.String(length=64), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )


def _unconfirmed() -> None:
    op.create_table(
        "unconfirmed",
        sa.Column("list_id", sa.String(length=32), nullable=False),
        sa.Column("until", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("list_id"),
    )
    op.create_index(op.f("ix_unconfirmed_until"), "unconfirmed", ["until"], unique=False)


def _users() -> None:
    op.create_table(
        "users",
        sa.Column("id", sa.String(length=256), nullable=False),
        sa.Column("labels", sa.JSON(), nullable=False),
        sa.Column("comment", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )


def _window_minutes() -> None:
    op.create_table(
        "window_minutes",
        sa.Column("minute", Number, nullable=False),
        sa.Column("window_id", Number, nullable=False),
        sa.Column("shown", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("minute", "window_id"),
    )


def _windows() -> None:
    op.create_table(
        "windows",
        sa.Column("id", Number, nullable=False),
        sa.Column("limit_id", Number, nullable=False),
        sa.Column("name", sa.String(length=64), nullable=False),
        sa.Column("opened_at", sa.Double(), nullable=False),
        sa.Column("closed_at", sa.Double(), nullable=True),
        sa.Column("shown", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("limit_id", "name"),
    )
    op.create_index(op.f("ix_windows_limit_id"), "windows", ["limit_id"], unique=False)
