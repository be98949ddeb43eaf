"""Losses, fixed point, histograms, splits, the forest; knows neither messages nor roles."""
