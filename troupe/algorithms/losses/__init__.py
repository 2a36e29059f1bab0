"""Policy-gradient losses: the only place in the SDK that may import torch."""

from troupe.algorithms.losses.policy import policy_loss
from troupe.algorithms.losses.policy_gradient import policy_gradient

__all__ = ["policy_gradient", "policy_loss"]
