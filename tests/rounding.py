"""How this machine rounds: CPUs with the same instructions may still sum in another order."""

import hashlib

import torch


def rounding() -> str:
    """A digest of sums, products and exponentials as the networks here use them."""
    generator = torch.Generator().manual_seed(0)
    digest = hashlib.sha256()
    for size in (8, 16, 64, 257):
        x = torch.randn(size, 97, generator=generator)
        w = torch.randn(97, 48, generator=generator)
        y = torch.sigmoid(torch.tanh(x @ w) @ torch.randn(48, 5, generator=generator)).exp()
        spd = (x.T @ x).double() + torch.eye(97, dtype=torch.float64)
        for part in (y, y.sum(0), y.logsumexp(1), torch.linalg.solve(spd, w.double())):
            digest.update(part.contiguous().numpy().tobytes())
    return digest.hexdigest()[:16]
