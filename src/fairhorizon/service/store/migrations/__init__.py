"""Alembic's scripts: how one version of the tables becomes the next."""
