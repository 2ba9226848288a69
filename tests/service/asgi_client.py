"""Calls an application in this process, as a browser with cookies would, without a server."""

import asyncio
from typing import Any

import httpx
from fastapi import FastAPI


class AsgiClient:
    """Cookies stay from one call to the next; redirects are not followed."""

    def __init__(self, app: FastAPI, base_url: str = "http://localhost") -> None:
        self.app, self.base_url = app, base_url
        self.cookies = httpx.Cookies()

    def call(self, method: str, path: str, **more: Any) -> httpx.Response:
        async def called() -> httpx.Response:
            transport = httpx.ASGITransport(self.app)
            async with httpx.AsyncClient(
                transport=transport, base_url=self.base_url, cookies=self.cookies
            ) as client:
                answer = await client.request(method, path, **more)
                self.cookies = client.cookies
                return answer

        return asyncio.run(called())

    def get(self, path: str, **more: Any) -> httpx.Response:
        return self.call("GET", path, **more)

    def post(self, path: str, **more: Any) -> httpx.Response:
        return self.call("POST", path, **more)
