"""A trunk shared by all workloads with one head each, and its growth into a workload's own network.

The paper's "unified learner" (vPALs, "Future Work"): domain-specific heads on a shared backbone. All
workloads' features stand in one joint input vector; a workload lacks some of them, and those are zero.
A workload's network starts from the trunk: Net2Net (Chen et al., ICLR 2016) widens and deepens it to
the sizes of table 6 without changing its function (identity layers are exact after a ReLU).

Symbols: J joint features, K workloads, w trunk width; x (batch, J), workload (batch,) indices.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from models.learners.mlp import build_mlp, linear_layers


class Backbone(nn.Module):
    """A network for all workloads of the pool.

    Attributes:
        trunk: two hidden layers of `width` on J joint features.
        head: one output row a workload.
    """

    trunk: nn.Sequential
    head: nn.Linear

    def __init__(self, joint_features: int, workloads: int, width: int, generator: torch.Generator) -> None:
        super().__init__()
        network = build_mlp(joint_features, (width, width), generator)
        self.trunk = nn.Sequential(*list(network)[:-1])
        self.head = nn.Linear(width, workloads)
        with torch.no_grad():
            self.head.weight.copy_(linear_layers(network)[-1].weight.expand(workloads, -1))
            self.head.bias.zero_()

    @property
    def layers(self) -> list[nn.Linear]:
        """The Linear layers, first to last."""
        return [*linear_layers(self.trunk), self.head]

    def forward(self, x: Tensor, workload: Tensor) -> Tensor:
        """Scaled target of each row for its workload: (batch,)."""
        # the heads of other workloads take no part: of 1,000 workloads they would be most of the work
        heads, column = workload.unique(return_inverse=True)
        outputs = linear(self.trunk(x), self.head.weight[heads], self.head.bias[heads])
        return outputs.gather(1, column[:, None])[:, 0]


def holds_trunk(hidden: Sequence[int], width: int) -> bool:
    """Whether a network of such hidden layers can start from a trunk of that width."""
    return len(hidden) >= 2 and min(hidden) >= width


@torch.no_grad()
def grow(backbone: Backbone, workload: int | None, columns: Sequence[int | None],
         network: nn.Sequential) -> nn.Sequential:
    """Makes a freshly initialised network compute what the backbone does for one workload.

    Args:
        workload: its head; None: a workload that the backbone has not seen, which starts from the mean of the heads.
        columns: positions (n,) of the workload's features in the joint vector, in the order of its inputs; None: a
            feature that no workload of the pool has, whose fresh weights stay.
        network: at least two hidden layers, none narrower than the trunk; otherwise it is returned as it is. Units
            beyond the trunk's keep their weights from below and feed nothing yet.
    """
    first, second, head = backbone.layers
    layers = linear_layers(network)
    width = second.out_features
    if not holds_trunk([layer.out_features for layer in layers[:-1]], width):
        return network
    for column, joint in enumerate(columns):
        if joint is not None:
            layers[0].weight[:width, column] = first.weight[:, joint]
    layers[0].bias[:width] = first.bias
    layers[1].weight[:width] = 0
    layers[1].weight[:width, :width] = second.weight
    layers[1].bias[:width] = second.bias
    for layer in layers[2:-1]:
        layer.weight[:width] = 0
        layer.weight[:width, :width] = torch.eye(width)
        layer.bias[:width] = 0
    layers[-1].weight.zero_()
    layers[-1].weight[0, :width] = head.weight.mean(dim=0) if workload is None else head.weight[workload]
    layers[-1].bias[0] = head.bias.mean() if workload is None else head.bias[workload]
    return network
