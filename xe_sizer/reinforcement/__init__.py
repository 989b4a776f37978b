"""Reinforcement learning: both wings joined. Answers are written by the serving wing, learnt from by the training wing.

An iteration is made of phases: rollout, log-probabilities, reward, training, weight synchronisation.
"""
