"""Tests of autotuner.inference."""
