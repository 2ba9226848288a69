"""FairHorizon: fair recommendation over time.

import fairhorizon as fh
parts = fh.split(fh.load("ml-100k"))
model = fh.Fcpo(fh.FcpoConfig(alpha_prime=0.4)).fit(parts)
print(fh.evaluate(model, parts).metrics)
"""

import lazy_loader

__version__ = "0.2.0"

# The public names stand in __init__.pyi. Each is imported when it is first used, so that
# `fairhorizon --help` does not wait for torch.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
