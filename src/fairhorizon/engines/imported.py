"""What takes long to import, and starts no thread: here once for all processes of a command.

Torch imports its compiler when the first optimiser is made.
"""

import scipy.optimize
import scipy.sparse
import torch
import torch._dynamo
import torch.distributed

__all__ = ["scipy", "torch"]
