"""The profile of Algorithm 5.1, as users write it in YAML (thesis, section 5.4.3)."""

from pydantic import Field

from feature_store.written.fields import PositiveNumber, PositiveWholeNumber
from feature_store.written.model import Written
from models.control.training.lifecycle import Profile


class ProfileFile(Written):
    """When a learned policy may act."""

    t_serving: float = Field(description="Mean reward of an episode from which a policy may act")
    t_var: PositiveNumber = Field(description="Largest standard deviation of those rewards")
    t_online: float = Field(default=0.0, description="Mean reward that ends offline training")
    bootstrap: bool = Field(default=True, description="Whether there is offline training, while the fallback acts")
    episodes: int = Field(default=10, ge=2, description="How many recent rewards count")
    most_missing: PositiveWholeNumber = Field(
        default=3, description="Episodes in a row without a reward that end serving")

    def profile(self, largest_reward: float, steps: int) -> Profile:
        """For episodes of so many steps.

        Args:
            largest_reward: largest possible reward of an episode.

        Raises:
            InputError: a threshold is larger than the largest possible reward.
        """
        return Profile(**self.model_dump(), largest_reward=largest_reward, steps=steps)
