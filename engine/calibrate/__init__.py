"""Uncertainty-guided calibration rounds and the fine-tuning set they yield (paper 001)."""
