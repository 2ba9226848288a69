"""Lists know how many places nothing could be found for."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("lists", sa.Column("missing", sa.Integer()))
