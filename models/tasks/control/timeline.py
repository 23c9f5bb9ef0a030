"""The lifecycle of a policy on training episodes of its workload: when it would have been let act (Algorithm 5.1).

Episodes of the fallback first, while the policy is trained offline, then the policy's own. What is written here is of
the twin; in production the same state machine follows the trajectory log (lifecycle_track.py).
"""

from typing import Any, Literal

import numpy as np

from models.control.contract.environment import ControlledSystem
from models.control.training.lifecycle import EpisodeEnded, Profile, Started, State, advance
from models.tasks.control.judging import FloatArray
from models.tasks.control.task import ControlTask

EPISODES = 60  # of each


def profile_of(task: ControlTask, system: ControlledSystem, steps: int, rewards: FloatArray) -> Profile:
    """What the task asks for, with its defaults taken from the fallback.

    Args:
        steps: of an episode that count.
        rewards: (E,) the fallback's, means a step.

    Raises:
        InputError: a threshold that no policy can reach.
    """
    written, mean = task.profile, float(rewards.mean())
    online = mean - 0.05 * abs(mean) if written.t_online is None else written.t_online
    serving = mean if written.t_serving is None else written.t_serving
    deviation = max(2.0 * float(rewards.std()), 1e-3) if written.t_var is None else written.t_var
    return Profile(t_serving=serving * steps, t_var=deviation * steps, largest_reward=system.largest_reward * steps,
                   t_online=online * steps, bootstrap=written.bootstrap, episodes=written.episodes, steps=steps)


def timeline(profile: Profile, fallback: FloatArray, policy: FloatArray) -> dict[str, Any]:
    """The stages, episode by episode.

    Args:
        fallback, policy: (E,) rewards of training episodes, means a step, of the same episodes.
    """
    state, _ = advance(State(), Started(), profile)
    stages, rewards, transitions = [], [], []
    number = {"fallback": 0, "policy": 0}
    for episode in range(min(len(fallback), EPISODES) + min(len(policy), EPISODES)):
        actor: Literal["policy", "fallback"] = "fallback" if state.stage == "offline" else "policy"
        own = fallback if actor == "fallback" else policy
        reward = float(own[number[actor] % len(own)])
        number[actor] += 1
        stages.append(str(state.stage))
        rewards.append(float(f"{reward:.6g}"))
        state, moved = advance(state, EpisodeEnded(episode, reward * profile.steps, actor), profile)
        if moved is not None:
            transitions.append({"episode": episode, "before": str(moved.before), "after": str(moved.after),
                                "reason": moved.reason})
    return {"stages": stages, "rewards": rewards, "transitions": transitions,
            "profile": {"t_online": profile.t_online / profile.steps, "t_serving": profile.t_serving / profile.steps,
                        "t_var": profile.t_var / profile.steps, "episodes": profile.episodes,
                        "bootstrap": profile.bootstrap, "largest_reward": profile.largest_reward / profile.steps},
            "serving_share": float(np.mean([stage == "serving" for stage in stages]))}
