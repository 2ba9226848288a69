"""A service with simulated visitors: starts `fairhorizon serve`, sends traffic, says where to look.

    python examples/serve_demo.py --run RUN [--seconds 120] [--port 8088] [--keep]

Visitors ask for a list, see its first items and take one now and then, more often one of the first.
The loop is bounded by --seconds; with --keep the service goes on until Ctrl-C.
"""

import argparse
import json
import random
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

A_SECOND = 20  # requests
START_WITHIN = 120.0  # seconds


class Shop:
    """The service as a shop would call it."""

    def __init__(self, port: int) -> None:
        self.address = f"http://127.0.0.1:{port}"

    def call(self, path: str, body: object = None) -> tuple[object, str]:
        """The answer, and the id of the list if it is one."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(self.address + path, data, headers)
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.load(answer), answer.headers.get("X-List-Id", "")

    def wait(self) -> None:
        until = time.monotonic() + START_WITHIN
        while time.monotonic() < until:
            try:
                self.call("/api/health/ready")
            except (urllib.error.URLError, OSError):
                time.sleep(0.2)
            else:
                return
        raise SystemExit("the service did not start (see what it printed above)")


def visit(shop: Shop, user: str, draws: random.Random) -> int:
    """One visitor: a list, what they see of it and what they take. How many items they saw."""
    items, made = shop.call(f"/api/recommend/{user}?n=10")
    assert isinstance(items, list)
    seen = items[: draws.randint(3, 10)]
    events = [event("read", user, item, made) for item in seen]
    events += [
        event("take", user, item, made)
        for place, item in enumerate(seen)
        if draws.random() < 0.2 / (1 + place)
    ]
    shop.call("/api/feedback", events)
    return len(seen)


def event(kind: str, user: str, item: str, made: str) -> dict[str, str]:
    name = f"{made}-{kind}-{item}"
    return {
        "FeedbackType": kind,
        "UserId": user,
        "ItemId": item,
        "ListId": made,
        "EventId": name,
    }


def traffic(shop: Shop, users: list[str], seconds: float) -> tuple[int, int]:
    """Visits at a steady rate for so long; lists and seen items."""
    draws, lists, seen = random.Random(0), 0, 0
    started = time.monotonic()
    while time.monotonic() < started + seconds:
        seen += visit(shop, draws.choice(users), draws)
        lists += 1
        if lists % (15 * A_SECOND) == 0:
            print(f"{time.monotonic() - started:4.0f} s: {lists:,} lists", flush=True)
        time.sleep(max(0.0, started + lists / A_SECOND - time.monotonic()))
    return lists, seen


def report(shop: Shop) -> None:
    limits, _ = shop.call("/v1/limits")
    assert isinstance(limits, list)
    for limit in limits:
        for group in limit["Groups"]:
            reached = (
                "nothing yet" if group["Reached"] is None else f"{100 * group['Reached']:.1f} %"
            )
            kind = "promised" if limit["Promised"] else "steered by its price"
            print(f"  {limit['Limit']}: {reached} of {limit['Shown']:,.0f} showings ({kind})")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--run", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--port", type=int, default=8088)
    parser.add_argument("--keep", action="store_true")
    options = parser.parse_args()
    words = ["serve", "--run", str(options.run), "--port", str(options.port)]
    server = subprocess.Popen([sys.executable, "-m", "fairhorizon", *words])
    shop = Shop(options.port)
    try:
        shop.wait()
        print(f"dashboard: {shop.address}/   API: {shop.address}/docs", flush=True)
        users = [str(number) for number in range(1, 944)]  # those of MovieLens-100K
        lists, seen = traffic(shop, users, options.seconds)
        print(f"{lists:,} lists, {seen:,} items seen; the limits:")
        report(shop)
        if options.keep:
            print(f"serving on at {shop.address}/ until Ctrl-C", flush=True)
            server.wait()
    except KeyboardInterrupt:
        pass
    finally:
        server.terminate()
        server.wait()
    print(f"serve it again: fairhorizon serve --run {options.run}")


if __name__ == "__main__":
    main()
