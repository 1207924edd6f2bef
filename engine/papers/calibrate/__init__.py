"""Uncertainty-guided calibration rounds and the resulting fine-tuning set (paper 001)."""
