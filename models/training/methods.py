"""The training methods by name, of predictors and of policies; without pydantic, for the command line lists them."""

from typing import Literal, get_args

Method = Literal["plain", "counterexample_guided", "monotone", "certified", "certified_guided"]
METHODS: tuple[Method, ...] = get_args(Method)

# Of policies: models/control/training.
PolicyMethod = Literal["through_environment", "ddpg", "td3", "sac", "ppo", "behaviour_cloning", "td3_bc", "bcq", "cql",
                       "iql"]
POLICY_METHODS: tuple[PolicyMethod, ...] = get_args(PolicyMethod)
