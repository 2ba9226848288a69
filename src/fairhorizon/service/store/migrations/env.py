"""Runs migrations on the connection that `migrate` has opened, inside its transaction."""

from alembic import context

from fairhorizon.service.store.schema import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    render_as_batch=True,
    transactional_ddl=True,
)
context.run_migrations()
