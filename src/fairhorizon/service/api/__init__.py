"""The interface over HTTP: Gorse's names under /api, our own under /v1."""
