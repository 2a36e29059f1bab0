"""Small environments with known numbers, made the way that users of each project make them."""

import random

import gymnasium
import numpy as np


class Corridor(gymnasium.Env):
    """Walk from 0 to 3; each step costs 0.1, the end pays 1. Starts at a seeded place."""

    action_space = gymnasium.spaces.Discrete(2)
    observation_space = gymnasium.spaces.Discrete(4)
    num_made = 0

    def __init__(self, width=3):
        type(self).num_made += 1
        self.width = width
        self.at = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.at = int(self.np_random.integers(self.width))
        return self.at, {}

    def step(self, action):
        assert self.action_space.contains(action), action
        self.at = max(0, self.at + (1 if action == 1 else -1))
        is_end = self.at == self.width
        return self.at, (1.0 if is_end else -0.1), is_end, False, {}


gymnasium.register(
    "EasyCartPole-v0",
    "gymnasium.envs.classic_control.cartpole:CartPoleEnv",
    reward_threshold=5.0,
)


class GloballyRandom(Corridor):
    """Draws from the global generators, as many old environments do."""

    def step(self, action):
        seen, paid, ended, cut, info = super().step(action)
        noise = random.random() + random.gauss() + float(np.random.random() + np.random.normal())
        return np.array([seen, noise]), paid, ended, cut, info


class DrawnWhenMade(Corridor):
    """Draws from the global generators in its constructor."""

    def __init__(self):
        super().__init__()
        self.drawn = random.random() + float(np.random.random())

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.array([self.drawn]), {}


class DrawnWhenMadeTogether:
    """The same in PettingZoo's parallel API, for one agent."""

    def __init__(self):
        self.drawn = random.random() + float(np.random.random())
        self.possible_agents = ["a"]

    def action_space(self, agent):
        return gymnasium.spaces.Discrete(2)

    def reset(self, seed=None, options=None):
        self.agents = ["a"]
        return {"a": np.array([self.drawn])}, {}

    def close(self):
        pass


class NotDetermined(Corridor):
    """Shows something that no seed determines."""

    num_steps = 0

    def step(self, action):
        type(self).num_steps += 1
        seen, paid, ended, cut, info = super().step(action)
        return np.array([seen, self.num_steps]), paid, ended, cut, info


class Steering(gymnasium.Env):
    """A continuous action: steer to the number that was shown."""

    action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,))
    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (1,))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.wanted = float(self.np_random.uniform(-1, 1))
        return np.array([self.wanted]), {}

    def step(self, action):
        error = abs(float(action[0]) - self.wanted)
        return np.array([self.wanted]), 1.0 - error, True, False, {"is_success": error < 0.1}


def parse_number(text):
    return [float(text.strip().split()[-1])]


def steer(prompt, agent, rng):
    return prompt.strip("[]")


def always_right(prompt, agent, rng):
    return "action: right"


def save_corridor(env):
    return bytes([env.unwrapped.at])


def restore_corridor(env, data):
    env.unwrapped.at = data[0]


class Nim:
    """A text game: players take 1 or 2 of 5 sticks in turn; whoever takes the last one wins.

    TextArena's four methods; an unreadable move loses at once.
    """

    def reset(self, num_players, seed=None):
        random.seed(seed)
        self.num_players, self.player, self.rewards = num_players, 0, None
        self.sticks = random.choice([5, 6, 7])
        self.news = {n: [(-1, f"You are player {n}.", "PROMPT")] for n in range(num_players)}
        self._tell(f"{self.sticks} sticks")

    def get_observation(self):
        seen, self.news[self.player] = self.news[self.player], []
        return self.player, seen

    def step(self, action):
        others = [n for n in range(self.num_players) if n != self.player]
        if action not in ("[1]", "[2]"):
            self.rewards = {self.player: -1, **dict.fromkeys(others, 1)}
            return True, {"reason": "invalid"}
        self.sticks -= int(action[1])
        if self.sticks <= 0:
            self.rewards = {self.player: 1, **dict.fromkeys(others, -1)}
            return True, {}
        self._tell(f"player {self.player} took {action[1]}, {self.sticks} sticks")
        self.player = (self.player + 1) % self.num_players
        return False, {}

    def close(self):
        return self.rewards, {n: {"reason": "over"} for n in range(self.num_players)}

    def _tell(self, text):
        for news in self.news.values():
            news.append((-1, text, "GAME"))


class Lamp(Corridor):
    """Shows an image: a lamp of 8 x 4 pixels, lit away from the start."""

    observation_space = gymnasium.spaces.Box(0, 255, (4, 8, 3), np.uint8)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.at = 0
        return np.zeros((4, 8, 3), np.uint8), {}

    def step(self, action):
        seen, paid, ended, cut, info = super().step(action)
        light = np.array([255, 200, 0], np.uint8) * (seen > 0)
        return np.tile(light, (4, 8, 1)).astype(np.uint8), paid, ended, cut, info
