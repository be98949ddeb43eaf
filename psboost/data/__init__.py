"""Readers, sketches, bin mapper, blocks; knows neither gradients nor trees."""
