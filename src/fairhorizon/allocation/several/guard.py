"""Several limits and floors that hold after every single request, whatever comes next.

A list is the best one at a price for each rule (best_lists.py). The prices follow what the lists
would use (an online dual). If the list would break a rule, counted with everything shown before,
the prices of what it breaks are raised for this request alone (one_list.py). docs/guarantee.md has
the proof.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fairhorizon.allocation.group_budget import Candidates
from fairhorizon.allocation.request_guard import ExposureGuard
from fairhorizon.allocation.several.best_lists import NEVER, BestLists
from fairhorizon.allocation.several.one_list import best_of_each_class, one_list
from fairhorizon.allocation.several.online_prices import STEP, OnlinePrices
from fairhorizon.allocation.several.terms import Counts, Floats, GroupRule, Terms
from fairhorizon.errors import ConfigError, ModelError
from fairhorizon.files import write_text
from fairhorizon.metrics.shares import ROUNDING
from fairhorizon.ranking import discount

KIND = "rules-guard"
_LOCK = type(Lock())


class RulesGuard:
    """Serves one request after the other; after each, every rule holds for all showings so far.

    rules: on all showings, with the groups of the items.
    prices: initial price of each rule, in units of the values
    step: how fast the prices move, without a unit

    All methods may be called from several threads; a request is decided and counted under a lock.
    """

    def __init__(
        self, rules: Sequence[GroupRule], *, prices: Sequence[float] = (), step: float = STEP
    ) -> None:
        if prices and len(prices) != len(rules):
            raise ConfigError(f"{len(prices)} prices of {len(rules)} rules (give one for each)")
        self.rules = tuple(rules)
        first = np.array(prices or np.zeros(len(self.rules)), dtype=np.float64)
        self.online = OnlinePrices(first, step)
        self.used = np.zeros(len(self.rules))  # of each rule, never above 0 (terms.py)
        self.shown = 0
        self._terms: dict[int, Terms] = {}
        self._deciding = Lock()

    def __getstate__(self) -> dict[str, Any]:
        with self._deciding:
            return {name: part for name, part in vars(self).items() if not isinstance(part, _LOCK)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._deciding = Lock()

    @property
    def prices(self) -> Floats:
        """(m,) what each rule takes off the value of an item of its group."""
        return self.online.prices

    def serve_all(self, candidates: Candidates, length: int) -> Tensor:
        """(b, length) lists for the rows of the candidates, one after the other; -1: nothing."""
        if length < 1:
            raise ConfigError(f"a list of {length} items (take 1 or more)")
        if length not in self._terms:
            self._terms[length] = Terms.of(self.rules, length)
        terms = self._terms[length]
        items = candidates.items.cpu()
        values = candidates.values.detach().float().cpu().masked_fill(items < 0, -torch.inf)
        table = values.where(values > -torch.inf, NEVER).numpy()
        weights = discount(torch.arange(1, length + 1, dtype=torch.float64)).numpy()
        shown = torch.full((len(items), length), -1)
        for row in range(len(items)):
            codes = items[row].clamp(min=0).numpy()
            some, offers = best_of_each_class(table[row], terms.of_item[codes], terms)
            at = self._serve(BestLists(offers, terms, weights))[0]
            filled = at[at >= 0]
            shown[row, : len(filled)] = torch.from_numpy(codes[some[filled]])
        return shown.to(candidates.items)

    def _serve(self, best: BestLists) -> Counts:
        """(1, L) the list of one request, counted."""
        with self._deciding:  # two requests that saw the same counts could use the room twice
            before = self.prices
            wanted = best.assigned(before)[0]
            excess = wanted.use[0] / np.maximum(best.terms.weights.sum(1), ROUNDING)
            self.online.follow(best, excess)
            made = one_list(best, -self.used, before, self.online.unit).lists
            self.used = self.used + made.use[0]
            self.shown += int((made.at >= 0).sum())
        return made.at

    def prices_by_name(self) -> dict[str, float]:
        """The present price of each rule."""
        return {
            str(rule): float(price) for rule, price in zip(self.rules, self.prices, strict=True)
        }

    def save(self, path: str | Path) -> None:
        """Write what `restore` needs; the file is replaced as a whole or not at all."""
        with self._deciding:
            state = {
                "kind": KIND,
                "rules": [str(rule) for rule in self.rules],
                "used": self.used.tolist(),
                "shown": self.shown,
                **self.online.stored(),
            }
        write_text(Path(path), json.dumps(state, indent=2) + "\n")

    def restore(self, path: str | Path) -> "RulesGuard":
        """Continue from a file that a guard of the same rules has written."""
        try:
            state = json.loads(Path(path).read_text(encoding="utf-8"))
            rules, used, shown = state["rules"], state["used"], state["shown"]
            online = OnlinePrices.restored(state)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ModelError(f"{path}: not the file of a guard of several rules: {error}") from None
        if state.get("kind") != KIND or rules != [str(rule) for rule in self.rules]:
            raise ModelError(
                f"{path}: the guard of other rules, {', '.join(map(str, rules))} (give the same)"
            )
        with self._deciding:
            self.used, self.shown, self.online = np.array(used), shown, online
        return self


RequestGuard = ExposureGuard | RulesGuard  # of one rule that counts in any way, or of several
