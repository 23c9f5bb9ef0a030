"""The training methods by name. Without pydantic: the command line lists them in its help."""

from typing import Literal, get_args

Method = Literal["plain", "counterexample_guided", "monotone", "certified", "certified_guided"]
METHODS: tuple[Method, ...] = get_args(Method)
